package integration

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"

	"tandem/integration/stack"
)

// A container gets a file, whole and with its mode, and an image is made of it that
// has the file.
func TestCLIUploadAndCommitOfAContainer(t *testing.T) {
	needEngine(t)
	s := startLocal(t)
	app := func(name, image, script string) string {
		return file(t, name+".json", `{"apiVersion":"v4","kind":"application","metadata":{"name":"`+name+`","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":1},
  "spec":{"instance":1,"template":{"spec":{"networkMode":"NONE","containers":[{"image":"`+image+`","imagePullPolicy":"Never",
  "command":"/bin/sh","args":["-c","`+script+`"],"resources":{"limits":{"cpu":"0.5","memory":"32"}}}]}}}}`)
	}
	s.ok("apply", "--wait", "-f", app("box", harness.image, "sleep 1000"))
	// As large as a file may be, so that every layer takes it.
	big := strings.Repeat("0123456789abcdef", 64<<10)
	if out := s.ok("upload", "box-0", file(t, "big", big), "/tmp/big", "-n", "test", "--mode", "0640"); !strings.Contains(out, "/tmp/big put in place (1048576 bytes)") {
		t.Errorf("upload: %s", out)
	}
	if out := s.ok("exec", "box-0", "-n", "test", "--", "busybox", "md5sum", "/tmp/big"); !strings.HasPrefix(out, md5Of(big)) {
		t.Errorf("it is %s", out)
	}
	if out := s.ok("exec", "box-0", "-n", "test", "--", "busybox", "stat", "-c", "%a %u", "/tmp/big"); out != "640 0\n" {
		t.Errorf("mode and owner: %s", out)
	}
	refused(t, s.tandem("upload", "box-0", file(t, "small", "x"), "/none/x", "-n", "test"), 6, "directory /none does not exist in the container")
	refused(t, s.tandem("upload", "box-0", file(t, "bigger", big+"x"), "/tmp/x", "-n", "test"), 2, "more than 1048576 bytes")
	refused(t, s.tandem("reload", "box-0", "-n", "test"), 6, "send it the signal that it reloads on")
	refused(t, s.tandem("restart-process", "box-0", "-n", "test"), 6, "restart its taskgroup")

	name := "tandem-test-commit-cli-" + strconv.Itoa(os.Getpid()) + ":v1"
	out := s.ok("commit", "box-0", name, "-n", "test")
	// Before the stack and the test's context end.
	defer func() {
		s.tandem("delete", "application", "copy", "-n", "test", "--wait") // it is not there when the test has failed before
		if _, err := harness.engine.ImageRemove(context.Background(), name, image.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}()
	if !strings.Contains(out, "image "+name+" made (sha256:") {
		t.Errorf("commit: %s", out)
	}
	refused(t, s.tandem("commit", "box-0", name, "-n", "test"), 6, "on this agent already")
	s.ok("apply", "--wait", "-f", app("copy", name, "ls -l /tmp; sleep 1000"))
	eventually(t, 20*time.Second, "the file in the copy", func() bool { return strings.Contains(s.ok("logs", "copy-0", "-n", "test"), "big") })
}

// A process takes every message that there is for one, through the whole stack,
// and stays the same task all along.
func TestCLIMessagesToAProcess(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "--wait", "-f", file(t, "p.json", `{"apiVersion":"v4","kind":"process","metadata":{"name":"nap","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":2},
  "spec":{"instance":1,"template":{"spec":{"processes":[{"procName":"nap","workPath":"${work_base_dir}/nap.${instanceid}",
  "startCmd":"exec /bin/sh -c 'trap \"cat conf\" USR1; echo up; while :; do sleep 0.1; done'",
  "reloadCmd":"test -s conf && kill -USR1 $(pgrep -f 'echo up')","env":[{"name":"MARK","value":"in here"}],
  "resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`))
	logs := func(n int, what string) {
		t.Helper()
		eventually(t, 20*time.Second, what, func() bool { return strings.Count(s.ok("logs", "nap-0", "-n", "test"), what) == n })
	}
	task := func() string { return s.ok("get", "tasks", "-n", "test", "-o", "json") }
	logs(1, "up")
	pid := s.pids()
	if out := s.ok("exec", "nap-0", "-n", "test", "--", "sh", "-c", `echo "$MARK $(pwd)"`); !strings.HasPrefix(out, "in here /") || !strings.Contains(out, "/nap.0\n") {
		t.Errorf("exec: %s", out)
	}
	o := s.tandem("exec", "nap-0", "-n", "test", "--", "sh", "-c", "echo trouble >&2; exit 7")
	if o.code != 7 || o.errOut != "trouble\n" {
		t.Errorf("exec: %+v", o)
	}
	refused(t, s.tandem("reload", "nap-0", "-n", "test"), 6, "reloadCmd", "exit code 1")
	s.ok("upload", "nap-0", file(t, "conf", "hello from conf\n"), "conf", "-n", "test")
	refused(t, s.tandem("upload", "nap-0", file(t, "evil", "x"), "../conf", "-n", "test"), 6, "beneath workPath")
	s.ok("signal", "nap-0", "USR1", "-n", "test")
	logs(1, "hello from conf")
	if out := s.ok("resize", "nap-0", "-n", "test", "--limit-memory", "64", "--limit-cpu", "0.25"); !strings.Contains(out, "(limit 0.25)") {
		t.Errorf("resize: %s", out)
	}
	if b, err := os.ReadFile(cgroupFile(t, pid[0], "cpu", "cpu.cfs_quota_us", "cpu.max")); err != nil || !strings.HasPrefix(string(b), "25000") {
		t.Errorf("quota %q %v", b, err)
	}
	before := task()
	if out := s.ok("restart-process", "nap-0", "-n", "test"); !strings.Contains(out, "restarted") {
		t.Errorf("restart: %s", out)
	}
	logs(2, "up")
	if out := s.ok("exec", "nap-0", "-n", "test", "--", "cat", "conf"); out != "hello from conf\n" {
		t.Errorf("its directory was not kept: %s", out)
	}
	if b, err := os.ReadFile("/proc/" + pid[0] + "/comm"); err == nil {
		t.Errorf("the first process lives on: %s", b)
	}
	if after := task(); strings.Count(after, `"startedAt"`) != strings.Count(before, `"startedAt"`) || !strings.Contains(after, "RUNNING") {
		t.Errorf("the task before:\n%s\nand after:\n%s", before, after)
	}
	eventually(t, 20*time.Second, "the new pid in the table", func() bool { now := s.pids(); return len(now) == 1 && now[0] != pid[0] })
	refused(t, s.tandem("commit", "nap-0", "x:y", "-n", "test"), 6, "this is for containers")
}

// What the operator's policy forbids is refused with its name, and all else is not.
func TestCLIMessagesThatTheOperatorForbids(t *testing.T) {
	policy := file(t, "executor.yaml", "messages: [signal, exec]\nexec: false\n")
	f := startFault(t, faultOptions{flags: map[string][]string{
		stack.Agent(0): {`--executor_environment_variables={"TANDEM_EXECUTOR_POLICY":"` + policy + `"}`},
	}})
	s := &localStack{t: t, server: f.s.Server()}
	s.ok("apply", "--wait", "-f", file(t, "p.json", sleeper("nap", 1)))
	s.ok("signal", "nap-0", "CONT", "-n", "test")
	for _, args := range [][]string{
		{"upload", "nap-0", policy, "x"}, {"resize", "nap-0", "--limit-cpu", "1"}, {"reload", "nap-0"}, {"restart-process", "nap-0"}, {"exec", "nap-0", "-n", "test", "--", "true"},
	} {
		if args[0] != "exec" {
			args = append(args, "-n", "test")
		}
		refused(t, s.tandem(args...), 6, "the policy of this agent ("+policy+") forbids")
	}
	s.ok("delete", "process", "nap", "-n", "test", "--wait")
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// cgroupFile is the file of a limit of a process, of either version of control groups.
func cgroupFile(t *testing.T, pid, controller, v1, v2 string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.SplitN(line, ":", 3)
		switch {
		case len(f) < 3:
		case slices.Contains(strings.Split(f[1], ","), controller):
			return "/sys/fs/cgroup/" + controller + f[2] + "/" + v1
		case f[0] == "0":
			path := "/sys/fs/cgroup" + f[2] + "/" + v2
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	t.Skipf("process %s has no %s limit here", pid, controller)
	return ""
}
