package integration

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/api"
	"tandem/integration/stack"
	sched "tandem/scheduler/wire"
)

// A whole stack that trusts nobody: TLS between all, a framework with
// credentials, executors with tokens.
func TestStackWithTLSAndCredentials(t *testing.T) {
	t.Parallel()
	dir := certificateFor(t)
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := filepath.Join(dir, "cert.pem")
	secret := write("secret", "hush-hush-secret\n")
	var env []string
	for name, value := range sslVariables(dir, "CA_FILE", ca) {
		env = append(env, name+"="+value)
	}
	f := startFault(t, faultOptions{
		env: env, secure: true,
		flags: map[string][]string{
			stack.Master: {"--credentials=" + write("credentials", `{"credentials":[{"principal":"tandem","secret":"hush-hush-secret"}]}`),
				"--authenticate_http_frameworks", "--http_framework_authenticators=basic"},
			stack.Agent(0):  {"--authenticate_http_executors", "--jwt_secret_key=" + write("key", "a key")},
			stack.Scheduler: {"--ca-file=" + ca, "--principal=tandem", "--secret-file=" + secret},
		},
	})
	f.applyThese(json.RawMessage(`{"apiVersion":"v4","kind":"process","metadata":{"name":"p","namespace":"secure"},"spec":{"instance":1,"template":{"spec":{
"processes":[{"procName":"sh","startCmd":"echo what it says; exec /bin/sleep 1000","resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`))
	var group sched.Taskgroup
	eventually(t, 30*time.Second, "the taskgroup", func() bool {
		groups, err := f.api.Taskgroups(t.Context(), "secure")
		if err != nil || len(groups) != 1 {
			return false
		}
		group = groups[0]
		return group.State == sched.Running
	})
	// What is asked beside the scheduler API: the master's agents, and files of an agent.
	agents, err := f.api.Agents(t.Context())
	if err != nil || len(agents) != 1 || !strings.HasPrefix(agents[0].Address, "https://") || agents[0].Total.CPUs != 8 {
		t.Errorf("agents %+v, %v", agents, err)
	}
	eventually(t, 10*time.Second, "the log", func() bool {
		out, code := f.s.Tandem(t.Context(), "logs", group.ID)
		return code == 0 && strings.Contains(out, "what it says")
	})
	if resp, err := http.Get(strings.Replace(f.s.MasterURL(), "https://", "http://", 1) + "/state"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("the master speaks plain HTTP: nothing is shown here")
		}
	}
	if err := f.api.Delete(t.Context(), api.Ref{Kind: api.KindProcess, Namespace: "secure", Name: "p"}); err != nil {
		t.Error(err)
	}
	f.gone()
	for _, name := range []string{stack.Master, stack.Agent(0), stack.Scheduler, stack.Daemon} {
		if log := f.s.Log(name); strings.Contains(log, "hush-hush") || strings.Contains(log, tokenStart) {
			t.Errorf("the log of %s holds a secret", name)
		}
	}
}
