package integration

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// onceProcess is a process that is started once, with a field replaced.
func onceProcess(name, fields string) string {
	return `{"apiVersion":"v4","kind":"process","metadata":{"name":"` + name + `","namespace":"test"},
  "restartPolicy":{"policy":"Never"},
  "spec":{"instance":1,"template":{"spec":{"processes":[{"procName":"sleep",
  "resources":{"limits":{"cpu":"0.1","memory":"32"}},` + fields + `}]}}}}`
}

// TestCLITaskFailuresAreToldWhereTheyAreWaitedFor applies what cannot run: the
// message must reach the command line that waits, and deleting must leave nothing.
func TestCLITaskFailuresAreToldWhereTheyAreWaitedFor(t *testing.T) {
	s := startLocal(t)
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	archive := missing.URL + "/app-v1.tar.gz"

	type failure struct{ name, artifact, want string }
	failures := []failure{
		{"no-uri", onceProcess("no-uri", `"workPath":"/tmp","startCmd":"./start.sh","uris":[{"value":"`+archive+`","outputDir":"/tmp"}]`), "404"},
		{"no-command", onceProcess("no-command", `"workPath":"/tmp","startCmd":"./does-not-exist.sh"`), "does-not-exist.sh"},
		{"no-user", onceProcess("no-user", `"workPath":"/tmp","startCmd":"/bin/sleep 9","user":"nobody-of-that-name"`), "nobody-of-that-name"},
	}
	if harness.engine != nil {
		failures = append(failures, failure{"no-image", `{"apiVersion":"v4","kind":"application","metadata":{"name":"no-image","namespace":"test"},
  "restartPolicy":{"policy":"Never"},
  "spec":{"instance":1,"template":{"spec":{"networkMode":"HOST","containers":[{"image":"tandem-test/not-there:1","imagePullPolicy":"Never",
  "resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`, "tandem-test/not-there:1"})
	} else {
		t.Log("the missing image is left out: " + harness.noEngine)
	}
	for _, f := range failures {
		o := s.tandem("apply", "-f", file(t, f.name+".json", f.artifact), "--wait", "--timeout", "60s")
		refused(t, o, 1, f.name, f.want)
		kind := "process"
		if f.name == "no-image" {
			kind = "application"
		}
		if out := s.ok("describe", kind, f.name, "-n", "test"); !strings.Contains(out, f.want) {
			t.Errorf("describe lacks %q:\n%s", f.want, out)
		}
		s.ok("delete", kind, f.name, "-n", "test", "--wait", "--timeout", "30s")
	}
	if out := s.tandem("get", "taskgroups"); !strings.Contains(out.errOut, "there are no taskgroups") {
		t.Errorf("taskgroups are left:\n%s", out.out)
	}
}

func TestCLINamesWhatIsNotThere(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "-f", file(t, "sleep.json", sleeper("nap", 1)), "--wait")
	refused(t, s.tandem("get", "process", "nip"), 4, `process "nip" not found`, `did you mean "nap"?`)
	refused(t, s.tandem("describe", "process", "nap", "-n", "prod"), 4, `process "nap" not found in namespace prod`)
	refused(t, s.tandem("delete", "process", "nap"), 4, "not in namespace defaultGroup but in test")
	refused(t, s.tandem("scale", "process/nap", "-n", "test", "--replicas", "-1"), 2, "-1 instances: use 0 to")
	refused(t, s.tandem("logs", "nap-7", "-n", "test"), 4, `taskgroup "nap-7" not found`)
	o := s.tandem("scale", "process/nap", "999", "-n", "test", "--wait", "--timeout", "2s")
	refused(t, o, 5, "not reached within 2s", "process/nap")
	s.ok("delete", "process/test/nap", "--wait")
}

func TestCLIPortThatIsTakenOnTheAgent(t *testing.T) {
	s := startLocal(t)
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	port := taken.URL[strings.LastIndexByte(taken.URL, ':')+1:]
	o := s.tandem("apply", "-f", file(t, "taken.json", onceProcess("taken",
		`"workPath":"/tmp","startCmd":"/bin/sleep 98765","ports":[{"name":"http","hostPort":`+port+`,"protocol":"tcp"}]`)), "--wait", "--timeout", "60s")
	refused(t, o, 1, "taken", port)
	s.ok("delete", "process", "taken", "-n", "test", "--wait")
}
