package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/policy"
	"tandem/internal/execstream"
)

// TestP6FrameworkMessages: what a framework may ask of a running process, through the
// daemon. The task stays the same one all along.
func TestP6FrameworkMessages(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", `trap 'cat conf >> seen' HUP; echo run >> runs; while :; do sleep 0.02; done`)
	work := task.Spec.Process.WorkPath
	task.Spec.Process.ReloadCmd = "test ! -e broken && echo reloaded >> seen"
	first := launch(t, r, task)
	ended := make(chan executor.Exit, 1)
	go func() { ended <- wait(t, r, "a") }()
	text := func(name string) string {
		b, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			return ""
		}
		return string(b)
	}
	eventually(t, "the first run", func() bool { return text("runs") == "run\n" })

	if err := r.Upload(t.Context(), "a", api.UploadFile{Path: "conf", Content: []byte("new\n"), Mode: 0o600}); err != nil || text("conf") != "new\n" {
		t.Errorf("upload: %v", err)
	}
	if err := r.Upload(t.Context(), "a", api.UploadFile{Path: "/etc/tandem-test"}); err == nil || !strings.Contains(err.Error(), "beneath workPath") {
		t.Errorf("upload elsewhere: %v", err)
	}
	if err := r.Reload(t.Context(), "a"); err != nil || text("seen") != "reloaded\n" {
		t.Errorf("reload: %v, %q", err, text("seen"))
	}
	if err := os.WriteFile(filepath.Join(work, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "reloadCmd: exit code 1") {
		t.Errorf("broken reload: %v", err)
	}
	var out strings.Builder
	code, err := r.Session(t.Context(), "a", api.ExecRequest{Command: []string{"sh", "-c", "echo $A; pwd; exit 3"}}, execstream.Terminal{Stdout: &out})
	if code != 3 || err != nil || out.String() != "b\n"+work+"\n" {
		t.Errorf("session: %d %v %q", code, err, out.String())
	}
	if err := r.UpdateResources(t.Context(), "a", api.ResourceUpdate{Limits: api.TaskResources{CPUs: 0.5}}); err != nil && !strings.Contains(err.Error(), "no cpu controller") {
		t.Errorf("limits: %v", err)
	}
	for _, pids := range []int64{400, 0} {
		if err := r.UpdateResources(t.Context(), "a", api.ResourceUpdate{Limits: api.TaskResources{Pids: pids}}); err != nil {
			if !strings.Contains(err.Error(), "no pids controller") {
				t.Errorf("limit of processes: %v", err)
			}
		} else if st, err := r.c.Status(t.Context(), "a"); err != nil || st.Limits.Pids != 400 {
			t.Errorf("%+v %v", st.Limits, err)
		}
	}
	for i := 2; i < 4; i++ {
		if started, err := r.Restart(t.Context(), "a", 10*time.Second); err != nil || started.Pid == first.Pid || started.At.IsZero() {
			t.Fatalf("restart: %+v %v", started, err)
		}
		eventually(t, "another run", func() bool { return text("runs") == strings.Repeat("run\n", i) })
	}
	st, err := r.c.Status(t.Context(), "a")
	if err != nil || st.Restarts != 2 || st.Pid == first.Pid {
		t.Errorf("%+v %v", st, err)
	}
	select {
	case e := <-ended:
		t.Fatalf("a restart ended the task: %+v", e)
	default:
	}
	if err := r.Stop(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	<-ended
	_, lateErr := r.Restart(t.Context(), "a", 0)
	for what, err := range map[string]error{
		"upload": r.Upload(t.Context(), "a", api.UploadFile{Path: "late"}), "reload": r.Reload(t.Context(), "a"),
		"restart": lateErr, "limits": r.UpdateResources(t.Context(), "a", api.ResourceUpdate{}),
	} {
		if err == nil {
			t.Errorf("%s of a task that has ended", what)
		}
	}
}

// A restart goes on when the daemon goes in the middle, and is one restart.
func TestFaultDaemonGoesInARestart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", `trap 'sleep 0.3; exit 0' TERM; while :; do sleep 0.02; done`)
	launch(t, r, task)
	done := make(chan error, 1)
	go func() {
		_, err := r.Restart(context.Background(), "a", 20*time.Second)
		done <- err
	}()
	eventually(t, "the restart", func() bool { return h.count("POST /v1/tasks/a/restart") == 1 })
	h.down()
	h.up()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if st, err := r.c.Status(t.Context(), "a"); err != nil || st.Restarts != 1 {
		t.Errorf("%+v %v", st, err)
	}
}

// A restart whose start fails is told, and the task has ended.
func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", "./run.sh")
	dir := task.Spec.Process.WorkPath
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	launch(t, r, task)
	if err := os.Remove(filepath.Join(dir, "run.sh")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Restart(t.Context(), "a", 0); err == nil || !strings.Contains(err.Error(), "no such file in workPath") {
		t.Errorf("%v", err)
	}
	if e := wait(t, r, "a"); e.Known || !strings.Contains(e.Message, "no such file in workPath") {
		t.Errorf("%+v", e)
	}
}

func TestOperatorForbidsMessages(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	p, err := policy.Parse([]byte("messages: [signal]\nexec: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.opt.Policy = p
	if err := r.AllowMessage(api.MessageSignal); err != nil {
		t.Error(err)
	}
	if err := r.AllowMessage(api.MessageUpload); err == nil || !strings.Contains(err.Error(), "policy") {
		t.Error(err)
	}
	if r.AllowSession(true) == nil {
		t.Error("a session is allowed")
	}
}
