package local

import (
	"strings"
	"testing"

	"tandem/cmd/tandem/exit"
)

func env(pairs ...string) func(string) string {
	return func(k string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == k {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestDefaultDataDir(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  func(string) string
		uid  int
		want string
	}{
		{env(), 0, "/var/lib/tandem/local"},
		{env("HOME", "/home/eva"), 1000, "/home/eva/.local/share/tandem"},
		{env("HOME", "/home/eva", "XDG_DATA_HOME", "/data/eva"), 1000, "/data/eva/tandem"},
		{env("TANDEM_DATA_DIR", "/srv/t"), 0, "/srv/t"},
	} {
		if got := defaultDataDir(c.env, c.uid); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestOptionsAreAllCheckedAtOnce(t *testing.T) {
	t.Parallel()
	o := Defaults(env())
	if err := o.validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	o = Options{Agents: 2, Attributes: []string{"zone:a", "zone=b", "zone:c"}, Resources: []string{"cpus"},
		Listen: "localhost", MasterPort: 70000, AgentPort: 0}
	err := o.validate()
	if exit.Of(err) != exit.Usage {
		t.Fatalf("exit code %d for %v", exit.Of(err), err)
	}
	for _, want := range []string{
		"--attributes is given 3 times for 2 agents", `"zone=b" is not name:value`, `"cpus" is not name:value`,
		"--data-dir is empty", `--listen "localhost"`, "--master-port 70000", "--agent-port 0",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestMachinesDifferInAddressAndPorts(t *testing.T) {
	t.Parallel()
	o := Defaults(env())
	o.Agents, o.DataDir = 3, "/"
	o.Attributes = []string{"zone:a;rack:r1", "zone:b"}
	o.Resources = []string{"cpus:2;mem:1000; ports:[4000-4999]", "cpus:8"}
	m := o.machines()
	if m[0].Resources[:len("cpus:2;mem:1000;ports:[4000-4999];disk:")] != "cpus:2;mem:1000;ports:[4000-4999];disk:" {
		t.Errorf("agent-1: %s", m[0].Resources)
	}
	if !strings.HasPrefix(m[1].Resources, "cpus:8;mem:") || !strings.HasSuffix(m[1].Resources, "ports:[32000-32999]") {
		t.Errorf("agent-2: %s", m[1].Resources)
	}
	if m[2].IP != "127.0.0.3" || m[2].Attributes != "zone:a;rack:r1" || m[2].Name != "agent-3" {
		t.Errorf("agent-3: %+v", m[2])
	}
}
