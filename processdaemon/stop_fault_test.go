package processdaemon

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// TestFaultStopGoesOn: a stop that was under way when the daemon was killed
// ends at its recorded deadline, neither earlier nor a whole grace after the next daemon's start.
func TestFaultStopGoesOn(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	p.createAndStart(p.spec("a", `trap "" TERM; echo ready; while :; do sleep 0.05; done`))
	p.await("a", running)
	eventually(t, "the trap is set", func() bool { return read(t, filepath.Join(p.dir, "sandbox/a/stdout")) == "ready\n" })
	p.must("stop", func(ctx context.Context) error { _, err := p.c.Stop(ctx, "a", 10*time.Minute); return err })
	p.await("a", terminating)
	p.stop(syscall.SIGKILL)
	// As if most of it were over.
	file := filepath.Join(p.dir, "data/processd/tasks", shortHash("a")+".json")
	r, err := readRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	killAt := bootNow() + int64(1500*time.Millisecond)
	write(t, file, strings.Replace(read(t, file), fmt.Sprintf(`"killAt":%d`, r.KillAt), fmt.Sprintf(`"killAt":%d`, killAt), 1), 0o600)
	p.start("")
	p.await("a", ended)
	if early := time.Duration(killAt - bootNow()); early > 0 {
		t.Errorf("ended %v too early", early)
	}
}

// TestFaultKilledBeforeItsSignal: a stop that was recorded, by a daemon that was killed before it
// sent SIGTERM, is no wait for SIGKILL.
func TestFaultKilledBeforeItsSignal(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("processdaemon/saved/terminating=kill")
	s := p.spec("a", `trap "exit 7" TERM; : > up; while :; do sleep 0.02; done`)
	p.createAndStart(s)
	eventually(t, "its trap", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
	p.must("stop", func(ctx context.Context) error { _, err := p.c.Stop(ctx, "a", time.Hour); return err })
	if st := p.await("a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 7}) {
		t.Errorf("%+v", st.Exit)
	}
}
