package localmesos_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"tandem/localmesos/cmdexec"
	"tandem/localmesos/command"
)

// probeVariable is the directory of the prober; probeScenarios may name some of
// its scenarios, separated by commas, instead of all.
const (
	probeVariable  = "MESOSPROBE"
	probeScenarios = "MESOSPROBE_SCENARIOS"
)

// mesosMain makes this test binary the master, the agent or the command executor.
func mesosMain(args []string) int {
	root := &cobra.Command{Use: "mesos"}
	root.AddCommand(command.NewMasterCommand(), command.NewAgentCommand())
	root.AddCommand(&cobra.Command{Use: "command-executor", Run: func(*cobra.Command, []string) { os.Exit(cmdexec.Main()) }})
	root.SetArgs(args)
	if root.Execute() != nil {
		return 1
	}
	return 0
}

// TestProbe drives master and agent as processes of their own and compares what
// they do with what was recorded from Apache Mesos 1.12.
func TestProbe(t *testing.T) {
	dir := os.Getenv(probeVariable)
	if dir == "" {
		t.Skip(probeVariable + " (the directory of the prober and its goldens) is not set; it takes about four and a half minutes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	prober := filepath.Join(tmp, "mesosprobe")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", prober, ".")
	build.Dir = dir
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the prober: %v\n%s", err, text)
	}
	script := func(name, args string) string {
		path := filepath.Join(tmp, name)
		if err := os.WriteFile(path, []byte("exec '"+self+"' mesos "+args+" $PROBE_FLAGS\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{
		"--master", "http://" + freeAddress(t), "--agent", "http://" + freeAddress(t),
		"--master-cmd", script("master.sh", `master --ip=127.0.0.1 --port="$PROBE_MASTER_PORT" --hostname=127.0.0.1 --work_dir="$PROBE_DIR"`),
		"--agent-cmd", script("agent.sh", `agent --ip=127.0.0.1 --port="$PROBE_AGENT_PORT" --hostname=127.0.0.1 --master="$PROBE_MASTER" --work_dir="$PROBE_DIR" --resources="cpus:4;mem:4096;disk:10240;ports:[31000-32000]" --attributes="rack:r1;slots:4;window:[1-5,8-9]"`),
	}
	// probe records scenarios and returns what differs: first in what frameworks depend on, where nothing is allowed
	// to, and then in texts and headers, too, but for what is named.
	probe := func(out string, names []string) []difference {
		golden, args := filepath.Join(dir, "golden"), append(slices.Clone(args), "--out", out)
		if len(names) > 0 {
			args = append(args, "--scenario", strings.Join(names, ","))
			golden = chosen(t, golden, names)
		}
		if text, err := exec.CommandContext(t.Context(), prober, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		var all []difference
		for _, ignore := range []string{"message,header,new,other", "new,other"} {
			text, err := exec.CommandContext(t.Context(), prober, "diff", "--ignore", ignore, golden, out).CombinedOutput()
			t.Logf("ignoring %s:\n%s", ignore, text)
			found := differences(string(text))
			if (err == nil) != (len(found) == 0) {
				t.Fatalf("the prober says %v, and %d differences are read from what it says", err, len(found))
			}
			all = append(all, found...)
		}
		return unnamed(all)
	}
	var names []string
	if chosen := os.Getenv(probeScenarios); chosen != "" {
		names = strings.Split(chosen, ",")
	}
	found := probe(filepath.Join(tmp, "out"), names)
	if len(found) == 0 {
		return
	}
	// The prober's own actions race with what they observe (it tears a framework down while an executor ends), and on a
	// machine with other work such a race goes the other way once in a while. What differs has a second run, alone.
	names = scenariosOf(found)
	if len(names) > 3 {
		t.Fatalf("this is no race: nothing is run again\n%v", found)
	}
	t.Logf("to run again: %v\n%v", names, found)
	if found = probe(filepath.Join(tmp, "again"), names); len(found) > 0 {
		t.Errorf("%v differ in a second run, too\n%v", names, found)
	}
}

// chosen makes a directory with the goldens of some scenarios only.
func chosen(t *testing.T, golden string, names []string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(filepath.Join(golden, name+".jsonl"), filepath.Join(dir, name+".jsonl")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
