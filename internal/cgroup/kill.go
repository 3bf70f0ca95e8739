package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// Kill sends SIGKILL to everything in the group. It does not wait: poll Empty,
// and kill again while it is not. A group that was killed must be removed and
// created anew before another process is put into it: Linux 6 kills what is
// cloned into a group that ever saw cgroup.kill, because it compares the kill
// counters of the parent's group and the new one.
func (g *Group) Kill() error {
	if err := failpoint.Inject("cgroup/kill"); err != nil {
		return err
	}
	if g.tree.mode == ModeSession {
		return errors.Join(g.halt(), g.Signal(unix.SIGKILL))
	}
	dir := g.dir(g.tree.track)
	if g.tree.track.v2 {
		err := writeFile(filepath.Join(dir, "cgroup.kill"), "1")
		if err == nil {
			return g.killHeadless()
		}
		if _, statErr := os.Stat(dir); errors.Is(err, unix.ENODEV) || Gone(statErr) {
			return nil
		}
		// cgroup.kill exists since Linux 5.14.
	}
	freeze, thaw := "cgroup.freeze", [2]string{"1", "0"}
	if !g.tree.track.v2 {
		freeze, thaw = "freezer.state", [2]string{"FROZEN", "THAWED"}
	}
	path := filepath.Join(dir, freeze)
	// Frozen processes cannot fork, so the list is complete; where there is no
	// freezer they are stopped, which they may notice. In v1 the kill takes effect at the thaw.
	if writeFile(path, thaw[0]) != nil {
		return errors.Join(g.halt(), g.Signal(unix.SIGKILL))
	}
	g.awaitFrozen(dir)
	err := g.Signal(unix.SIGKILL)
	_ = writeFile(path, thaw[1])
	return err
}

// killHeadless kills the processes of the group whose main thread has ended while others run.
// cgroup.kill sends its signal to the main thread alone (kernel/cgroup/cgroup.c,
// __cgroup_kill), and a thread that has ended passes nothing on.
func (g *Group) killHeadless() error {
	pids, err := g.Pids()
	if err != nil {
		return err
	}
	headless := slices.DeleteFunc(pids, func(pid int) bool { return !procid.Headless(pid) })
	return g.signal(headless, unix.SIGKILL)
}

// awaitFrozen waits until every process of the group is frozen, for a moment: they
// freeze one by one, and one that is not frozen yet may fork.
func (g *Group) awaitFrozen(dir string) {
	file, want := "cgroup.events", "frozen 1"
	if !g.tree.track.v2 {
		file, want = "freezer.state", "FROZEN"
	}
	const limit = 200 * time.Millisecond
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.Contains(string(b), want) {
			return
		}
	}
}

// halt stops what is in the group until nothing new appears in it: what is stopped
// does not fork, so a storm of forks dies down. It gives up after some rounds.
func (g *Group) halt() error {
	const rounds = 50
	stopped := map[int]bool{}
	for range rounds {
		pids, err := g.Pids()
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(pids, func(pid int) bool { return stopped[pid] })
		if len(fresh) == 0 {
			return nil
		}
		if err := g.signal(fresh, unix.SIGSTOP); err != nil {
			return err
		}
		for _, pid := range fresh {
			stopped[pid] = true
		}
	}
	return nil
}

// Signal sends sig to everything in the group, process by process.
func (g *Group) Signal(sig syscall.Signal) error {
	pids, err := g.Pids()
	return errors.Join(err, g.signal(pids, sig))
}

// SignalFrom sends sig to everything in the group once, to the process pid first. What is
// forked meanwhile, perhaps to act on the signal, gets none.
func (g *Group) SignalFrom(pid int, sig syscall.Signal) error {
	pids, err := g.Pids()
	if i := slices.Index(pids, pid); i > 0 {
		pids[0], pids[i] = pids[i], pids[0]
	}
	return errors.Join(err, g.signal(pids, sig))
}

func (g *Group) signal(pids []int, sig syscall.Signal) (err error) {
	for _, pid := range pids {
		p, openErr := procid.OpenPid(pid)
		if openErr != nil {
			if !errors.Is(openErr, procid.ErrGone) {
				err = errors.Join(err, openErr)
			}
			continue
		}
		// The pid may have been given away since the list was read: look again, for
		// as long as what was opened lives its number is its own.
		in, inErr := g.Contains(pid)
		if err = errors.Join(err, inErr); inErr == nil && in {
			if sigErr := p.Signal(sig); sigErr != nil && !errors.Is(sigErr, procid.ErrGone) {
				err = errors.Join(err, sigErr)
			}
		}
		p.Close()
	}
	return err
}
