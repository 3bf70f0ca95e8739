package keeper

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFaultSignalBeforeExec: a process that is signalled while it is being started, before its
// exec, does not stand still for ever, held by its tracer, nor its keeper with it.
func TestFaultSignalBeforeExec(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	threads := procFile(r.c.Peer().Pid, "task")
	if _, err := os.ReadFile(filepath.Join(threads, itoa(r.c.Peer().Pid), "children")); err != nil {
		t.Skip("this kernel does not tell a process's children: ", err)
	}
	done := make(chan struct{})
	signalled := make(chan int)
	go func() {
		n := 0
		defer func() { signalled <- n }()
		for {
			select {
			case <-done:
				return
			default:
			}
			lists, _ := filepath.Glob(filepath.Join(threads, "*", "children"))
			for _, list := range lists {
				text, _ := os.ReadFile(list) // of a thread that may have ended
				for field := range strings.FieldsSeq(string(text)) {
					if pid, err := strconv.Atoi(field); err == nil && unix.Kill(pid, unix.SIGTERM) == nil {
						n++
					}
				}
			}
		}
	}()
	// The longer the exec, the more often it is met; one that fails gives every signal that is on its way.
	script := filepath.Join(r.dir, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const starts, most = 200, 3 * time.Second
	began := time.Now()
	for i := 0; i < starts && time.Since(began) < most; i++ {
		s := r.spec("a", "")
		s.Path = script
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, _, err := r.c.Spawn(ctx, s)
		hangs := ctx.Err() != nil
		cancel()
		if err == nil || hangs {
			t.Errorf("start %d: %v", i, err)
			break
		}
	}
	close(done)
	if n := <-signalled; n == 0 {
		t.Error("nothing was signalled")
	}
	if t.Failed() {
		return
	}
	// Its program hears signals.
	if got := r.ended(r.spawn("b", "grep SigBlk /proc/self/status; kill $$; sleep 600")); got.Signal != int(unix.SIGTERM) || !got.Known {
		t.Errorf("after that: %+v", got)
	}
	if got := r.out("b"); got != "SigBlk:\t0000000000000000\n" {
		t.Errorf("it blocks %q", got)
	}
	if id := r.c.Peer(); !id.Alive() {
		t.Error("the keeper has ended")
	}
}
