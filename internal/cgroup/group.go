package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// Limits of a group; zero means none.
type Limits struct {
	CPUs float64
	// CPURequest is the share, in cores, that the group gets when all want more than
	// there is; nobody is held back by it.
	CPURequest  float64
	MemoryBytes int64
	// Pids is the most processes and threads. For Update 0 leaves it as it is, and a
	// negative number takes it away.
	Pids int64
	// PidsIfPossible has nobody told that Pids is not enforced.
	PidsIfPossible bool
}

// Group is one task's control group.
type Group struct {
	tree *Tree
	name string

	mu      sync.Mutex
	leaders []procid.Identity
}

// Lead tells the group a process that was put into it, the first one first.
// Only ModeSession needs it: there the group is what is in the sessions of
// these processes.
func (g *Group) Lead(id procid.Identity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !id.IsZero() && !slices.Contains(g.leaders, id) {
		g.leaders = append(g.leaders, id)
	}
}

// sessions are what the group is in ModeSession.
func (g *Group) sessions() (sessions, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return sessionsOf(g.leaders)
}

func (g *Group) dir(h *hierarchy) string { return filepath.Join(h.mount, g.tree.base, g.name) }

// Create makes the group and sets its limits; it may be called again. The
// notes say plainly, one sentence each, what is not enforced on this machine.
func (g *Group) Create(l Limits) (notes []string, err error) {
	if err := failpoint.Inject("cgroup/create"); err != nil {
		return nil, err
	}
	t := g.tree
	if t.mode != ModeSession {
		// The base may have been removed by another daemon's Close.
		if err := g.make(t.track); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	set := func(controller, what string, v1, v2 map[string]string) {
		h := t.limit[controller]
		if h == nil {
			notes = append(notes, fmt.Sprintf("%s is not enforced: no %s controller is available on this agent", what, controller))
			return
		}
		values := v1
		if h.v2 {
			values = v2
		}
		err := g.make(h)
		for _, file := range slices.Sorted(mapsKeys(values)) {
			if err == nil {
				err = writeFile(filepath.Join(g.dir(h), file), values[file])
			}
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is not enforced: %v", what, err))
		}
	}
	if l.MemoryBytes > 0 {
		v := strconv.FormatInt(l.MemoryBytes, 10)
		set("memory", fmt.Sprintf("memory limit of %d MiB", l.MemoryBytes>>20),
			map[string]string{"memory.limit_in_bytes": v}, map[string]string{"memory.max": v})
	}
	if l.CPUs > 0 {
		quota := strconv.Itoa(cpuQuota(l.CPUs))
		set("cpu", fmt.Sprintf("cpu limit of %g cores", l.CPUs),
			map[string]string{"cpu.cfs_period_us": strconv.Itoa(cpuPeriod), "cpu.cfs_quota_us": quota},
			map[string]string{"cpu.max": quota + " " + strconv.Itoa(cpuPeriod)})
	}
	if h := t.limit["cpu"]; l.CPURequest > 0 && h != nil && (h.v2 || l.CPUs > 0) {
		// As in CostsAMove.
		shares := cpuShares(l.CPURequest)
		set("cpu", fmt.Sprintf("cpu request of %g cores", l.CPURequest),
			map[string]string{"cpu.shares": strconv.Itoa(shares)},
			map[string]string{"cpu.weight": strconv.Itoa(cpuWeight(shares))})
	}
	if l.Pids > 0 {
		v := strconv.FormatInt(l.Pids, 10)
		told := len(notes)
		set("pids", fmt.Sprintf("limit of %d processes", l.Pids), map[string]string{"pids.max": v}, map[string]string{"pids.max": v})
		if l.PidsIfPossible {
			notes = notes[:told]
		}
	}
	return notes, nil
}

// make makes the group in a hierarchy, and what is above it.
func (g *Group) make(h *hierarchy) error {
	return whileGone(func() error { return os.MkdirAll(g.dir(h), 0o755) })
}

// CostsAMove tells whether a controller's limit, beside these, would have each process
// moved into a group for it alone, which takes longer than its start (see AddCloned): in
// a v1 hierarchy, unless it is moved anyway. What nobody asked for is not worth that.
func (t *Tree) CostsAMove(controller string, beside Limits) bool {
	h := t.limit[controller]
	return h != nil && !h.v2 && t.track.v2 && beside.MemoryBytes <= 0 && beside.CPUs <= 0
}

func mapsKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// OpenForClone opens the group's directory for clone3(2) with
// CLONE_INTO_CGROUP, so that a process starts its life inside. It returns nil
// where that is not possible; Add the process before its exec then.
func (g *Group) OpenForClone() (*os.File, error) {
	if g.tree.mode == ModeSession || !g.tree.track.v2 {
		return nil, nil //nolint:nilnil // no file is an answer here: this machine cannot clone into a group
	}
	fd, err := unix.Open(g.dir(g.tree.track), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", g.dir(g.tree.track), err)
	}
	return os.NewFile(uintptr(fd), "cgroup"), nil
}

// OpenProcs opens the files that take a process into the group when its number
// is written to them, in every hierarchy where the group exists, for a process
// that knows nothing of groups. cloned is as for AddCloned.
func (g *Group) OpenProcs(cloned bool) (files []*os.File, err error) {
	if g.tree.mode == ModeSession {
		return nil, nil
	}
	for _, h := range g.tree.hierarchies() {
		if cloned && h == g.tree.track {
			continue
		}
		f, err := os.OpenFile(filepath.Join(g.dir(h), "cgroup.procs"), os.O_WRONLY, 0)
		if Gone(err) && h != g.tree.track {
			continue
		}
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, fmt.Errorf("open cgroup: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

// Add moves a process into the group, in every hierarchy where the group exists.
func (g *Group) Add(pid int) error { return g.add(pid, false) }

// AddCloned is Add for a process that was cloned into the group, see
// OpenForClone: it moves it only where limits of their own hierarchies ask for
// it. Every move waits for an RCU grace period in the kernel (the lock
// cgroup_threadgroup_rwsem), which costs ten milliseconds and more.
func (g *Group) AddCloned(pid int) error { return g.add(pid, true) }

func (g *Group) add(pid int, cloned bool) error {
	if g.tree.mode == ModeSession {
		return nil
	}
	for _, h := range g.tree.hierarchies() {
		if cloned && h == g.tree.track {
			continue
		}
		err := writeFile(filepath.Join(g.dir(h), "cgroup.procs"), strconv.Itoa(pid))
		if Gone(err) && h != g.tree.track {
			continue
		}
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("add pid %d to cgroup: %w", pid, err)
		}
	}
	return nil
}

// Pids returns the processes in the group and below it, in no order. Zombies
// are not among them.
func (g *Group) Pids() ([]int, error) {
	if g.tree.mode == ModeSession {
		s, err := g.sessions()
		if err != nil {
			return nil, err
		}
		return s.pids()
	}
	var out []int
	err := filepath.WalkDir(g.dir(g.tree.track), func(path string, d fs.DirEntry, err error) error {
		if Gone(err) || err == nil && !d.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		pids, err := readPids(filepath.Join(path, "cgroup.procs"))
		out = append(out, pids...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list cgroup: %w", err)
	}
	return out, nil
}

func readPids(path string) ([]int, error) {
	f, err := os.Open(path)
	if Gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []int
	s := bufio.NewScanner(f)
	for s.Scan() {
		// 0 stands for a process that this pid namespace cannot see.
		if pid, err := strconv.Atoi(s.Text()); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	// A threaded group (cgroups(7)) tells its threads alone; their processes are among those of
	// the group above it that is none, which is read, too: a task's own never is.
	if err := s.Err(); err != nil && !Gone(err) && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, err
	}
	return out, nil
}

// Contains tells whether the process is in the group or below it.
func (g *Group) Contains(pid int) (bool, error) {
	if g.tree.mode == ModeSession {
		s, err := g.sessions()
		if err != nil {
			return false, err
		}
		return s.has(strconv.Itoa(pid))
	}
	// The process is asked and not the group, which may have thousands.
	dir := fmt.Sprintf("/proc/%d", pid)
	in, err := g.told(dir + "/cgroup")
	if in || err != nil || g.tree.track.v2 || !procid.Headless(pid) {
		return in, err
	}
	// v1 shows what is a zombie in the root, also a process whose main thread alone has ended.
	threads, err := os.ReadDir(dir + "/task")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		if in, err = g.told(dir + "/task/" + t.Name() + "/cgroup"); in || err != nil {
			return in, err
		}
	}
	return false, nil
}

// told reads in a file of proc_pid_cgroup(5) whether it names the group or one below it; the
// file of what has ended names none.
func (g *Group) told(file string) (bool, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("control groups of a process: %w", err)
	}
	// hierarchy:controllers:path (cgroups(7)); the path may begin above the mount.
	own := "/" + filepath.Join(g.tree.base, g.name)
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && g.tree.track.named(f[0], f[1]) && (strings.HasSuffix(f[2], own) || strings.Contains(f[2], own+"/")) {
			return true, nil
		}
	}
	return false, nil
}

// Empty tells whether nothing of the group runs any more; a group that does
// not exist is empty.
func (g *Group) Empty() (bool, error) {
	if g.tree.mode != ModeSession && g.tree.track.v2 {
		b, err := os.ReadFile(filepath.Join(g.dir(g.tree.track), "cgroup.events"))
		if Gone(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read cgroup: %w", err)
		}
		return !strings.Contains(string(b), "populated 1"), nil
	}
	pids, err := g.Pids()
	return len(pids) == 0, err
}

// OOMKills returns how many processes of the group the kernel killed for lack
// of memory; 0 where that is not known.
func (g *Group) OOMKills() int {
	h := g.tree.limit["memory"]
	if h == nil {
		return 0
	}
	file := "memory.oom_control"
	if h.v2 {
		file = "memory.events"
	}
	b, err := os.ReadFile(filepath.Join(g.dir(h), file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, _ := strconv.Atoi(v)
			return n
		}
	}
	return 0
}

// Remove deletes the empty group; one that does not exist is no error.
func (g *Group) Remove() error {
	if err := failpoint.Inject("cgroup/remove"); err != nil {
		return err
	}
	if g.tree.mode == ModeSession {
		return nil
	}
	var errs error
	for _, h := range g.tree.hierarchies() {
		if err := removeTree(g.dir(h)); err != nil {
			errs = errors.Join(errs, fmt.Errorf("remove cgroup: %w", err))
		}
	}
	return errs
}

// removeTree removes a cgroup directory and those below it. The kernel may
// call a group busy for a moment after its last process has ended.
func removeTree(dir string) error {
	const tries, pause = 50, 2 * time.Millisecond
	err := unix.Rmdir(dir)
	for range tries {
		switch {
		case err == nil, Gone(err):
			return nil
		case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY):
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		entries, readErr := os.ReadDir(dir)
		if readErr == nil {
			for _, e := range entries {
				if e.IsDir() {
					if subErr := removeTree(filepath.Join(dir, e.Name())); subErr != nil {
						return subErr
					}
				}
			}
		}
		if err = unix.Rmdir(dir); err != nil {
			time.Sleep(pause)
			err = unix.Rmdir(dir)
		}
	}
	if err == nil || Gone(err) {
		return nil
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}
