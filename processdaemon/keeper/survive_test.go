package keeper

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
)

// TestKeeperOutlivesAWantOfFiles: a keeper that cannot take a connection for want of file
// descriptors goes on, takes it when there are some, and knows every end.
func TestKeeperOutlivesAWantOfFiles(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	e := r.spawn("0.1", "until [ -e "+r.dir+"/go ]; do sleep 0.01; done; exit 7")
	pid := r.c.Peer().Pid
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: 4096}, &old); err != nil {
		t.Skipf("limits of the keeper cannot be set: %v", err)
	}
	c, err := Dial(t.Context(), r.dir, 200*time.Millisecond)
	if err == nil {
		t.Fatal("it has taken a connection without a file descriptor for it")
	}
	if c != nil {
		c.Close()
	}
	touch(t, filepath.Join(r.dir, "go"))
	if got := r.ended(e); !got.Known || got.Code != 7 {
		t.Errorf("%+v", got)
	}
	old.Max = min(old.Max, 4096)
	old.Cur = min(old.Cur, old.Max)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
		t.Fatal(err)
	}
	again, err := Dial(t.Context(), r.dir, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Peer() != r.c.Peer() {
		t.Errorf("another keeper: %v, before %v", again.Peer(), r.c.Peer())
	}
}

// TestKeeperStaysUntilEveryEndIsOnDisk: how a process ended is not lost because the disk did
// not take it at once, though nobody is connected and nothing runs.
func TestKeeperStaysUntilEveryEndIsOnDisk(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	e := r.spawn("0.1", "until [ -e "+r.dir+"/go ]; do sleep 0.01; done; exit 7")
	store, away := filepath.Join(r.dir, "processes"), filepath.Join(r.dir, "away")
	if err := os.Rename(store, away); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(r.dir, "go"))
	if got := r.ended(e); !got.Known || got.Code != 7 {
		t.Errorf("%+v", got)
	}
	// As a daemon of another release would, to replace it.
	if err := r.c.Retire(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("it would end: %v", err)
	}
	r.c.Close()
	time.Sleep(idleTime + idleTime/2) // in which it would have ended
	if err := os.Rename(away, store); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.wait:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	got, err := readRecord(filepath.Join(store, e.Key+suffix))
	if err != nil || !got.Known || got.Code != 7 {
		t.Errorf("%+v %v", got, err)
	}
}

// TestStartThatWasForgottenDoesNotRun: a process whose start hangs, and whose key is forgotten
// meanwhile, runs nothing of its own when it goes on.
func TestStartThatWasForgottenDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "keeper/forked=1*sleep(3s)")
	got := make(chan error, 1)
	s := r.spec("0.1", "echo ran")
	go func() {
		_, _, err := r.c.Spawn(t.Context(), s)
		got <- err
	}()
	other, err := Dial(t.Context(), r.dir, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	eventually(t, "it is being started", func() bool {
		err := other.Forget(t.Context(), "0.")
		if err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		return errors.Is(err, ErrBusy)
	})
	if err := <-got; err == nil || !strings.Contains(err.Error(), "forgotten") {
		t.Errorf("%v", err)
	}
	if _, err := other.Look(t.Context(), "0.1"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	eventually(t, "nothing runs", func() bool {
		err := other.Retire(t.Context())
		return err == nil || errors.Is(err, ErrLost)
	})
	if names, err := os.ReadDir(filepath.Join(r.dir, "processes")); err != nil || len(names) > 0 {
		t.Errorf("%v %v", names, err)
	}
	if out := r.out("0.1"); out != "" {
		t.Errorf("it wrote %q", out)
	}
}

// TestEndsAreSyncedWithTheKeeper: what is gathered to be synced is synced when the keeper ends.
func TestEndsAreSyncedWithTheKeeper(t *testing.T) {
	t.Parallel()
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e := Entry{Key: "a", ID: procid.Identity{BootID: "b", Pid: 4242, StartTime: 77}}
	e.finish(procid.Status{Code: 3}, time.Now())
	if err := s.save(&e); err != nil {
		t.Fatal(err)
	}
	if len(s.pending) != 1 {
		t.Fatalf("to be synced: %v", s.pending)
	}
	if s.flush(); len(s.pending) != 0 {
		t.Errorf("not synced: %v", s.pending)
	}
}

// TestWhatAKilledKeeperHeldNeverRuns: a process is held until it is recorded, and the kernel ends it
// with its keeper.
func TestWhatAKilledKeeperHeldNeverRuns(t *testing.T) {
	t.Parallel()
	const yama, forbidden = "/proc/sys/kernel/yama/ptrace_scope", "3"
	if b, err := os.ReadFile(yama); err == nil && strings.TrimSpace(string(b)) == forbidden {
		t.Skip("processes cannot be traced here: " + yama)
	}
	for _, point := range []string{"forked", "save", "recorded"} {
		r := newRoom(t, "keeper/"+point+"=kill")
		said, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer said.Close()
		s := r.spec("0.1", "echo ran")
		s.Stdout, s.Stderr = out, out
		if _, _, err := r.c.Spawn(t.Context(), s); !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", point, err)
		}
		out.Close()
		// Its end is that of the last one who could write.
		if err := said.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(said); len(text) > 0 || err != nil {
			t.Errorf("%s: it wrote %q, %v", point, text, err)
		}
		r.kill()
	}
}
