package processdaemon

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

func TestForegroundExitCode(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for id, c := range map[string]struct {
		cmd  string
		want protocol.Exit
	}{
		"ok":     {"true", protocol.Exit{Known: true}},
		"code":   {"exit 7", protocol.Exit{Known: true, Code: 7}},
		"signal": {"kill -9 $$", protocol.Exit{Known: true, Signal: 9}},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			run(t, d, spec(d, id, c.cmd))
			st := awaitState(t, d, id, ended)
			if st.Exit == nil || *st.Exit != c.want || st.Failure != "" || !st.Started() {
				t.Errorf("%+v %+v", st, st.Exit)
			}
		})
	}
}

func TestStopAndDelete(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "sleep 60")
	st := run(t, d, s)
	if st.State != running || st.Pid == 0 {
		t.Fatalf("%+v", st)
	}
	if err := d.Delete(t.Context(), "a"); !isCode(err, protocol.CodeConflict) {
		t.Errorf("delete while running: %v", err)
	}
	// Both may be repeated.
	if _, err := d.Create(s); err != nil {
		t.Error(err)
	}
	if _, err := d.Start("a"); err != nil {
		t.Error(err)
	}
	if _, err := d.Stop("a", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	st = awaitState(t, d, "a", ended)
	if st.Exit == nil || st.Exit.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v %+v", st, st.Exit)
	}
	if st, err := d.Start("a"); err != nil || st.State != ended {
		t.Errorf("a repeated start after the end: %+v %v", st, err)
	}
	for range 2 {
		if err := d.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Status("a"); !isCode(err, protocol.CodeNotFound) {
		t.Errorf("status: %v", err)
	}
	if e, _ := os.ReadDir(d.store.tasks()); len(e) != 0 {
		t.Errorf("records left: %v", e)
	}
}

func TestEscapeesAreKilled(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", `setsid sh -c 'echo $$ >esc; trap "" TERM; while :; do sleep 1; done' & trap "" TERM; wait`)
	run(t, d, s)
	var pid int
	eventually(t, "the escapee runs", func() bool {
		b, _ := os.ReadFile(s.WorkPath + "/esc")
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0
	})
	if _, err := d.Stop("a", 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, d, "a", ended)
	if st.Exit == nil || st.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", st.Exit)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		if b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); !strings.Contains(string(b), ") Z ") {
			t.Errorf("the escapee lives: %s", b)
		}
	}
}

func TestLeftoversEndWithTheMainProcess(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "sleep 60 & exit 3")
	run(t, d, s)
	st := awaitState(t, d, "a", ended)
	if st.Exit == nil || st.Exit.Code != 3 {
		t.Errorf("%+v", st.Exit)
	}
	if empty, err := d.tree.Group(shortHash("a")).Empty(); !empty || err != nil {
		t.Error(empty, err)
	}
}
