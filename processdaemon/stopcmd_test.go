package processdaemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// TestAStopCommandThatDoesNotDoIsTold: a server that was ended by SIGTERM, because its stop
// command failed, could not be run or took too long, may have lost something; whoever asks is told.
func TestAStopCommandThatDoesNotDoIsTold(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, c := range []struct {
		id, stopCmd, want string
		grace             time.Duration
	}{
		{"fails", "echo no rights >&2; exit 4", `stopCmd "echo no rights >&2; exit 4": exit code 4; its last words: no rights`, time.Minute},
		{"missing", "./no-such-script", "no such file in workPath", time.Minute},
		{"slow", "sleep 600", `stopCmd "sleep 600" had not ended it after 750ms, three quarters of the grace, and SIGTERM was sent`, time.Second},
		{"good", "kill $MAINPID", "", time.Minute},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			s := spec(d, c.id, "exec sleep 600")
			s.StopCmd = c.stopCmd
			run(t, d, s)
			awaitState(t, d, c.id, running)
			if _, err := d.Stop(c.id, c.grace); err != nil {
				t.Fatal(err)
			}
			st := awaitState(t, d, c.id, ended)
			if st.Phase != protocol.PhaseStopped || st.Failure != "" {
				t.Errorf("%s, failure %q: it was asked for", st.Phase, st.Failure)
			}
			if c.want == "" && st.StopFailure != "" || !strings.Contains(st.StopFailure, c.want) {
				t.Errorf("%q, want %q", st.StopFailure, c.want)
			}
		})
	}
}

// TestAKillThatWasAskedForIsNotForLackOfMemory: a child that the kernel killed for lack of memory
// is no reason to say so of the main process, which was killed on request much later.
func TestAKillThatWasAskedForIsNotForLackOfMemory(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "tail /dev/zero; echo > over; exec sleep 600")
	s.Limits = protocol.Limits{MemMB: 32}
	run(t, d, s)
	if st := awaitState(t, d, "a", running); len(st.Notes) > 0 {
		t.Skipf("limits cannot be enforced here: %v", st.Notes)
	}
	eventually(t, "the child is killed", func() bool { _, err := os.Stat(filepath.Join(s.WorkPath, "over")); return err == nil })
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	if st := awaitState(t, d, "a", ended); st.Exit == nil || st.Exit.Signal != int(syscall.SIGKILL) || st.Exit.OOMKilled {
		t.Errorf("%+v", st.Exit)
	}
}
