package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/internal/testkit"
)

// An artifact with every lifecycle, containers and processes, and one network,
// from apply to its end.
func TestCLIMixedTaskgroupFromApplyToItsEnd(t *testing.T) {
	needEngine(t)
	s := startLocal(t)
	dir := testkit.ShortDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	command := func(line string) string { return fmt.Sprintf(`"command":"/bin/sh","args":["-c",%q]`, line) }
	s.ok("apply", "-f", file(t, "a.json", `{"apiVersion":"v4","kind":"application","metadata":{"name":"mix","namespace":"test"},
  "restartPolicy":{"policy":"OnFailure","interval":1},"killPolicy":{"gracePeriod":3,"drainDelay":1},
  "spec":{"instance":1,"template":{"spec":{"networkMode":"BRIDGE","shareNetwork":true,
  "containers":[
    {"name":"web","image":"`+harness.image+`","imagePullPolicy":"Never",`+command("while [ ! -e "+dir+"/go ]; do sleep 0.1; done")+`,
     "volumes":[{"volume":{"hostPath":"`+dir+`","mountPath":"`+dir+`"}}],"resources":{"limits":{"cpu":"0.1","memory":"32"}}},
    {"name":"before","lifecycle":"init","image":"`+harness.image+`","imagePullPolicy":"Never",`+command("echo ${bcs.ports.admin} > "+dir+"/init")+`,
     "volumes":[{"volume":{"hostPath":"`+dir+`","mountPath":"`+dir+`"}}],"resources":{"limits":{"cpu":"0.1","memory":"32"}}}],
  "processes":[
    {"name":"side","lifecycle":"sidecar","procName":"busybox","startCmd":"busybox httpd -f -p 9090 -h ${workPath}",
     "ports":[{"name":"admin","containerPort":9090,"hostPort":0,"protocol":"tcp"}],"resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`))
	count := func(state string) int { return strings.Count(s.ok("get", "tasks", "-n", "test"), state) }
	eventually(t, 10*time.Second, "running", func() bool { return count("RUNNING") == 2 })
	port, err := os.ReadFile(filepath.Join(dir, "init"))
	if err != nil {
		t.Fatal(err)
	}
	// The port of the process's, as the init container was told: published like a container's.
	reachable(t, "127.0.0.1:"+strings.TrimSpace(string(port)))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "finished", func() bool { return count("FINISHED") == 3 })
	// OnFailure does not start again what has finished, and a sidecar that was stopped has.
	if out := s.ok("describe", "application", "mix", "-n", "test"); !strings.Contains(out, "Ended") || strings.Contains(out, "Restarting") {
		t.Errorf("describe:\n%s", out)
	}
}
