package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/api"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    "",
		"# nothing\n":                         "",
		"privileged: false\n":                 "",
		"hostPaths: []\nregistries: [a.b]":    "",
		"priviledged: false":                  "line 1: key \"priviledged\" is unknown; did you mean privileged?",
		"x: 1":                                "known are",
		"privileged: maybe":                   "true or false",
		"privileged:":                         "true or false",
		"exec:":                               "true or false",
		"exec: sometimes":                     "true or false",
		"messages: [signal, upload]":          "",
		"messages: [reboot]":                  "no type of a message",
		"messages:":                           "[] allows none",
		"hostPaths:":                          "[] allows none",
		"hostPaths: /data":                    "a list of texts",
		"hostPaths: [data]":                   "no absolute path",
		"capabilities: [NET_ADMINS]":          "did you mean NET_ADMIN",
		"registries: ['']":                    "no registry",
		"- a":                                 "no mapping",
		"privileged: true\nprivileged: false": "given twice",
		"privileged: true\n---\nprivileged: false": "more than one document",
		"a: [": "yaml",
	} {
		_, err := Parse([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Load(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a named file that is missing: %v", err)
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("hostNetwork: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file+": line 1: hostNetwork must be true or false; no container is started") {
		t.Errorf("%v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	all := Request{Image: "redis:7", Privileged: true, HostNetwork: true, HostIPC: true, Capabilities: []string{"SYS_ADMIN", "CHOWN"}}
	var errs api.Errors
	if Default().Check(&errs, all); errs != nil {
		t.Errorf("the default forbids %v", errs)
	}
	p, err := Parse([]byte("privileged: false\nhostNetwork: false\nhostIPC: false\ncapabilities: [cap_chown]\nregistries: [registry.example.com/team]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p.File = "/etc/p"
	p.Check(&errs, all)
	var paths []string
	for _, e := range errs {
		paths = append(paths, e.Path)
		if !strings.Contains(e.Message, "policy of this agent (/etc/p) forbids") || !strings.Contains(e.Message, "ask the operator for") {
			t.Errorf("%s", e.Message)
		}
	}
	if got := strings.Join(paths, " "); got != "container.privileged network container.parameters container.capabilities.add[0] container.image" {
		t.Errorf("refused %s", got)
	}
	for image, ok := range map[string]bool{
		"registry.example.com/team/a:1": true, "registry.example.com/team/a@sha256:00": true, "registry.example.com/teams/a": false,
		"registry.example.com:5000/team/a": false, "registry.example.com.evil.org/team/a": false, "sha256:" + strings.Repeat("0", 64): false, "team/a": false,
	} {
		errs = nil
		if p.Check(&errs, Request{Image: image}); (errs == nil) != ok {
			t.Errorf("%s: %v", image, errs)
		}
	}
	p.Registries = []string{"docker.io/library"}
	for image, ok := range map[string]bool{"redis": true, "index.docker.io/library/redis": true, "docker.io/library/redis:7": true, "me/redis": false} {
		errs = nil
		if p.Check(&errs, Request{Image: image}); (errs == nil) != ok {
			t.Errorf("%s: %v", image, errs)
		}
	}
}

func TestHostPath(t *testing.T) {
	t.Parallel()
	same := func(s string) string { return s }
	p, err := Parse([]byte("hostPaths: [/data/, /logs]\nforbiddenHostPaths: [/data/secret]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{
		"/data/a": true, "/logs": true, "/database": false, "/": false, "/data/secret/x": false, "/data/secrets": true,
		// It would show what is forbidden.
		"/data": false,
	} {
		if err := p.HostPath(path, same); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
	if p, _ = Parse([]byte("hostPaths: []")); p.HostPath("/x", same) == nil {
		t.Error("an empty list allows")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("hostPaths: [/data]\nprivileged: false\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := Parse(text); err == nil && p == nil {
			t.Fatal("neither policy nor error")
		}
	})
}

func TestSessions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ local, remote bool }{
		"": {true, false}, "exec: true": {true, true}, "exec: false": {false, false},
	} {
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if local, remote := p.Session(true), p.Session(false); (local == nil) != want.local || (remote == nil) != want.remote {
			t.Errorf("%q: %v, %v", text, local, remote)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for text, allowed := range map[string]string{
		"": "signal resources exec upload reload restart commit logs", "messages: []": "", "messages: [upload, commit]\nregistries: []": "upload commit",
		"registries: [docker.io]": "signal resources exec upload reload restart logs",
	} {
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range api.MessageTypes() {
			if err := p.Message(api.MessageType(m)); err == nil {
				got = append(got, m)
			} else if !strings.Contains(err.Error(), "ask the operator for messages") {
				t.Error(err)
			}
		}
		if strings.Join(got, " ") != allowed {
			t.Errorf("%q allows %v", text, got)
		}
	}
}
