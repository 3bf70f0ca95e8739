// Package cgroup puts each task's processes into a control group of their own,
// so that all of them, however often they forked and whatever session they
// moved to, can be counted, limited and killed. It works with cgroups v2, with
// v1, and with both mounted side by side; where it may not make groups, it falls
// back to sessions, which an escapee can leave, and says so. It must never
// touch a group that it did not make.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mode tells how processes are tracked.
type Mode string

// The modes.
const (
	// ModeV2 is one hierarchy with the controllers.
	ModeV2 Mode = "v2"
	// ModeHybrid tracks in a v2 hierarchy and limits with v1 controllers.
	ModeHybrid Mode = "hybrid"
	// ModeV1 tracks in a v1 hierarchy.
	ModeV1 Mode = "v1"
	// ModeSession has no cgroups: a task is what is in its main process's session.
	ModeSession Mode = "session"
)

// Tree is a subtree of the hierarchies, below which groups are made.
type Tree struct {
	mode  Mode
	why   string
	track *hierarchy
	limit map[string]*hierarchy // controller -> where it lives
	base  string
	held  *os.File // the locked directory, see Hold
}

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	mount       string
	v2          bool
	controllers []string
}

// named tells whether a line of /proc/<pid>/cgroup is about this hierarchy, by its
// number and its controllers (cgroups(7)).
func (h *hierarchy) named(number, controllers string) bool {
	if h.v2 {
		return number == "0"
	}
	return number != "0" && len(h.controllers) > 0 && slices.Contains(strings.Split(controllers, ","), h.controllers[0])
}

func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// Open finds the hierarchies of this machine and prepares the subtree base, for
// example tandem/p-1a2b. It always succeeds: Mode tells what it came to.
func Open(base string) *Tree {
	mounts, err := mountedHierarchies("/proc/self/mountinfo")
	if err != nil {
		return &Tree{mode: ModeSession, why: err.Error(), base: base}
	}
	return openTree(mounts, base)
}

// trackingOrder lists the v1 hierarchies that are good for tracking, best
// first: freezer can stop a fork storm while it is killed, the others only track.
var trackingOrder = []string{"freezer", "pids", "name=systemd", "memory", "cpu"}

func openTree(mounts []*hierarchy, base string) *Tree {
	t := &Tree{mode: ModeSession, base: base, limit: map[string]*hierarchy{}}
	var tries []*hierarchy
	for _, h := range mounts {
		if h.v2 {
			tries = append(tries, h)
		}
	}
	for _, c := range trackingOrder {
		for _, h := range mounts {
			if !h.v2 && h.has(c) {
				tries = append(tries, h)
			}
		}
	}
	if len(tries) == 0 {
		t.why = "no cgroup file system is mounted"
		return t
	}
	var errs []error
	for _, h := range tries {
		if err := t.prepare(h); err != nil {
			errs = append(errs, err)
			continue
		}
		t.track = h
		break
	}
	if t.track == nil {
		t.why = errors.Join(errs...).Error()
		return t
	}
	t.mode = ModeV1
	if t.track.v2 {
		t.mode = ModeV2
	}
	for _, h := range mounts {
		for _, c := range h.controllers {
			if c == "cpu" || c == "memory" || c == "pids" {
				t.limit[c] = h
				if t.track.v2 && !h.v2 {
					t.mode = ModeHybrid
				}
			}
		}
	}
	return t
}

// prepare makes the base in a hierarchy and, for v2, passes the controllers down to it. Others
// remove what is empty (Close, Sweep), so it is made again when it goes meanwhile: whoever took
// that for a hierarchy that cannot be used would not find its processes.
func (t *Tree) prepare(h *hierarchy) error {
	return whileGone(func() error { return t.make(h) })
}

// whileGone tries for a moment to make something that others may remove at the same time.
func whileGone(try func() error) error {
	const patience, pause = 2 * time.Second, time.Millisecond
	err := try()
	// MkdirAll says that something exists which was gone when it looked what it was.
	for end := time.Now().Add(patience); (Gone(err) || errors.Is(err, os.ErrExist)) && time.Now().Before(end); {
		time.Sleep(pause)
		err = try()
	}
	return err
}

func (t *Tree) make(h *hierarchy) error {
	dir := h.mount
	for _, part := range strings.Split(filepath.Clean(t.base), "/") {
		if h.v2 {
			// Best effort, one by one: a controller that is refused here is one
			// whose limits are reported as not enforced.
			for _, c := range []string{"cpu", "memory", "pids"} {
				if h.has(c) {
					_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+"+c)
				}
			}
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	if h.v2 {
		for _, c := range []string{"cpu", "memory", "pids"} {
			if h.has(c) {
				_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+"+c)
			}
		}
	}
	// Being allowed to make a directory is not being allowed to move a process.
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("use cgroup: %w", err)
	}
	return f.Close()
}

// Mode tells how processes are tracked.
func (t *Tree) Mode() Mode { return t.mode }

// String describes the tree for people and logs.
func (t *Tree) String() string {
	if t.mode == ModeSession {
		return "no cgroups (" + t.why + "): processes are tracked by session, and one that leaves its session escapes"
	}
	var have []string
	for _, c := range []string{"cpu", "memory", "pids"} {
		if t.limit[c] != nil {
			have = append(have, c)
		}
	}
	limits := "no limits"
	if len(have) > 0 {
		limits = "limits for " + strings.Join(have, ", ")
	}
	return fmt.Sprintf("cgroups %s at %s, %s", t.mode, filepath.Join(t.track.mount, t.base), limits)
}

// Close removes the empty directories of the subtree; those that hold groups stay.
func (t *Tree) Close() {
	if t.mode == ModeSession {
		return
	}
	t.release()
	for _, h := range t.hierarchies() {
		for base := t.base; base != "." && base != "/"; base = filepath.Dir(base) {
			if err := os.Remove(filepath.Join(h.mount, base)); err != nil && !Gone(err) {
				break
			}
		}
	}
}

// Base is the name of the subtree, as Open takes it.
func (t *Tree) Base() string { return t.base }

// Abandon moves the caller out of a group in which it is alone, into the root of
// the hierarchy, and removes the group and, when it is empty, the subtree. It is
// the last thing that a process does which nobody outlives. What cannot be
// removed stays.
func (t *Tree) Abandon(group string) {
	if t.mode == ModeSession {
		return
	}
	_ = writeFile(filepath.Join(t.track.mount, "cgroup.procs"), "0") // see above
	_ = t.Group(group).Remove()                                      // see above
	t.Close()
}

func (t *Tree) hierarchies() []*hierarchy {
	out := []*hierarchy{t.track}
	for _, c := range []string{"cpu", "memory", "pids"} {
		if h := t.limit[c]; h != nil && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// Group returns the group of this name, which need not exist. The name must be
// a plain file name.
func (t *Tree) Group(name string) *Group { return &Group{tree: t, name: name} }

// Groups returns the names of the groups that exist.
func (t *Tree) Groups() ([]string, error) {
	if t.mode == ModeSession {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(t.track.mount, t.base))
	if Gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Gone tells whether an error, of this package or of cloning a process into a group, means that
// the group is not there. One that is being removed still has its name for a moment, in which
// the kernel answers ENODEV to whoever opens, reads or writes one of its files or makes a group in it.
func Gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}
