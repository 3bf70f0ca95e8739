package cgroup

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup/cgrouptest"
)

const holderEnv = "CGROUP_TEST_HOLD"

// TestMain doubles as a program that holds a tree, and can be killed.
func TestMain(m *testing.M) {
	if base := os.Getenv(holderEnv); base != "" {
		tree := Open(base)
		err := tree.Hold()
		if err == nil {
			_, err = tree.Group("task").Create(Limits{})
		}
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		for { // not select{}, which Go without cgo takes for a deadlock and ends
			_ = unix.Pause()
		}
	}
	os.Exit(cgrouptest.Run(m.Run))
}

// old makes a subtree look as if nothing had been made in it lately.
func (t *Tree) old(tb testing.TB) {
	tb.Helper()
	at := time.Now().Add(-2 * sweepAge)
	for _, h := range t.hierarchies() {
		dirs, _ := filepath.Glob(filepath.Join(h.mount, t.base, "*"))
		for _, d := range append(dirs, filepath.Join(h.mount, t.base)) {
			if st, err := os.Stat(d); err != nil || !st.IsDir() {
				continue
			}
			if err := os.Chtimes(d, at, at); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

func TestSweepRemovesWhatDeadProgramsLeft(t *testing.T) {
	for mode, own := range trees(t) {
		t.Run(string(mode), func(t *testing.T) {
			if mode == ModeSession {
				if err := own.Sweep("p-"); err != nil {
					t.Error(err)
				}
				return
			}
			beside := func(name string) *Tree {
				o := *own
				o.held, o.base = nil, filepath.Join(filepath.Dir(own.base), name)
				if err := o.prepare(o.track); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(o.Close)
				return &o
			}
			there := func(x *Tree) bool {
				_, err := os.Stat(filepath.Join(x.track.mount, x.base))
				return err == nil
			}
			dead, fresh, held, busy, other := beside("p-dead"), beside("p-fresh"), beside("p-held"), beside("p-busy"), beside("x-other")
			if _, err := dead.Group("task").Create(Limits{MemoryBytes: 1 << 30}); err != nil {
				t.Fatal(err)
			}
			if err := held.Hold(); err != nil {
				t.Fatal(err)
			}
			g := busy.Group("task")
			if _, err := g.Create(Limits{}); err != nil {
				t.Fatal(err)
			}
			cmd := start(t, g, "sleep 60; true")
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				_ = g.Kill()
				eventually(t, "the group is removed", func() bool { return g.Remove() == nil })
			})
			for _, x := range []*Tree{dead, held, busy, other} {
				x.old(t)
			}
			names, err := own.Unheld("p-")
			slices.Sort(names)
			if err != nil || !slices.Equal(names, []string{"p-dead", "p-fresh"}) {
				t.Errorf("unheld: %v, %v", names, err)
			}
			for range 2 {
				if err := own.Sweep("p-", "k-"); err != nil {
					t.Error(err)
				}
			}
			for x, want := range map[*Tree]bool{dead: false, fresh: true, held: true, busy: true, other: true, own: true} {
				if there(x) != want {
					t.Errorf("%s: there %v, want %v", x.base, there(x), want)
				}
			}
			for _, h := range own.hierarchies() {
				if _, err := os.Stat(filepath.Join(h.mount, dead.base)); err == nil {
					t.Errorf("left in %s", h.mount)
				}
			}
			held.release()
			held.old(t)
			if err := own.Sweep("p-"); err != nil || there(held) {
				t.Errorf("what nobody holds any more is there: %v, %v", there(held), err)
			}
		})
	}
}

// TestSweepAfterAKill: a lock goes with a program that is killed, and its groups with the next sweep.
func TestSweepAfterAKill(t *testing.T) {
	own := Open(filepath.Join(fmt.Sprintf("tandem-test-sweep-%d", os.Getpid()), "p-own"))
	if own.Mode() == ModeSession {
		t.Skip("no control groups: ", own)
	}
	t.Cleanup(own.Close)
	victim := *own
	victim.base = filepath.Join(filepath.Dir(own.base), "p-victim")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+victim.base)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = victim.Group("task").Remove(); victim.Close() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line)
	}
	victim.old(t)
	left := func() []string {
		t.Helper()
		if err := own.Sweep("p-"); err != nil {
			t.Fatal(err)
		}
		names, err := victim.Groups()
		if err != nil {
			return nil
		}
		return names
	}
	if len(left()) != 1 {
		t.Error("the group of a living program was removed")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if names := left(); len(names) > 0 {
		t.Errorf("left of a dead program: %v", names)
	}
}

// TestHoldAndSweepRace: whoever holds a tree has it, whatever is swept at the time.
func TestHoldAndSweepRace(t *testing.T) {
	own := Open(filepath.Join(fmt.Sprintf("tandem-test-race-%d", os.Getpid()), "p-own"))
	if own.Mode() == ModeSession {
		t.Skip("no control groups: ", own)
	}
	t.Cleanup(own.Close)
	other := *own
	other.base = filepath.Join(filepath.Dir(own.base), "p-other")
	stop := make(chan struct{})
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		for {
			select {
			case <-stop:
				return
			default:
				// Not Sweep, which would wait for its age.
				if f, err := lockDir(filepath.Join(own.track.mount, other.base), unix.LOCK_EX); err == nil && f != nil {
					_ = removeEmpty(filepath.Join(own.track.mount, other.base))
					f.Close()
				}
			}
		}
	}()
	for end := time.Now().Add(time.Second); time.Now().Before(end) && !t.Failed(); {
		if err := other.Hold(); err != nil {
			t.Error(err)
			break
		}
		if !sameDir(other.held, filepath.Join(own.track.mount, other.base)) {
			t.Error("held, and not there")
		}
		other.release()
	}
	close(stop)
	<-swept
	other.Close()
}
