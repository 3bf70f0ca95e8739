// Package container runs executors: real processes in sessions of their own, each
// with all its descendants in one cgroup (or at least one session), which outlive
// the agent and can be found and ended by a later one.
//
// It is for the embedded agent. It must never signal a process by number, and
// never start a program as a user that was not asked for.
package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
)

// Statuses that no wait(2) gives, as Apache Mesos reports them.
const (
	// StatusUnknown is that of a container that never started or whose end nobody saw.
	StatusUnknown int32 = -1
	// StatusKilled is that of a container that the agent destroyed.
	StatusKilled int32 = 9
	// StatusNotExecuted is that of a program that could not be executed.
	StatusNotExecuted int32 = 1001 << 8
)

// Launcher makes containers below one cgroup.
type Launcher struct{ tree *cgroup.Tree }

// NewLauncher prepares the cgroup root.
func NewLauncher(root string) *Launcher { return &Launcher{tree: cgroup.Open(root)} }

// String tells how processes are kept together.
func (l *Launcher) String() string { return l.tree.String() }

// Close removes the cgroup root if nothing is in it.
func (l *Launcher) Close() { l.tree.Close() }

// noLimits: resources are accounted by the master, not enforced here.
var noLimits cgroup.Limits

// Spec is what to run.
type Spec struct {
	ID string
	// Dir is the sandbox: the working directory, and where stdout and stderr go.
	Dir string
	// Program is a path, or a name to find in the PATH of Env; Args has argv[0].
	Program string
	Args    []string
	Env     []string
	// User is nil for the agent's own.
	User *User
	// Limits are set before the program runs, and are its children's, too.
	Limits []Limit
}

// Container is a started or found container.
type Container struct {
	id      string
	group   *cgroup.Group
	process *procid.Process // nil when there is none (any more)
	exit    *exitInfo
	failed  bool // the program could not be executed
	gate    *os.File
}

// Start starts a container's first process. On a machine where a process can
// be born inside its cgroup it runs at once; otherwise it waits, and dies with
// the agent, until Release. A program that cannot be executed is not an error:
// the container has ended, and its stderr and Wait tell why.
func (l *Launcher) Start(s Spec) (*Container, error) {
	c := &Container{id: s.ID, group: l.tree.Group(s.ID)}
	if _, err := c.group.Create(noLimits); err != nil {
		return nil, err
	}
	if err := c.start(s); err != nil {
		return nil, errors.Join(err, c.group.Remove())
	}
	return c, nil
}

func (c *Container) start(s Spec) error {
	stdout, err := OpenLog(s.Dir, "stdout", s.User)
	if err != nil {
		return err
	}
	defer stdout.Close()
	stderr, err := OpenLog(s.Dir, "stderr", s.User)
	if err != nil {
		return err
	}
	defer stderr.Close()
	program, err := lookPath(s.Program, s.Dir, s.Env)
	if err != nil {
		return c.notExecuted(stderr, err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	dir, err := c.group.OpenForClone()
	if err != nil {
		return err
	}
	attr := attributes(s, []*os.File{null, stdout, stderr})
	if dir != nil {
		defer dir.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
		if len(s.Limits) == 0 {
			return c.spawn(program, s.Args, attr, stderr)
		}
	}
	if err := c.spawnGated(program, s.Args, attr, stderr); err != nil || c.failed {
		return err
	}
	if dir == nil {
		err = c.group.Add(c.process.Identity().Pid)
	}
	if err == nil {
		err = c.setLimits(s.Limits)
	}
	if err != nil {
		c.dropGate() // it ends the process
		c.process.Close()
	}
	return err
}

func attributes(s Spec, files []*os.File) *os.ProcAttr {
	return &os.ProcAttr{Dir: s.Dir, Env: s.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: s.User.credential()}}
}

func (c *Container) spawn(program string, args []string, attr *os.ProcAttr, stderr io.Writer) error {
	p, err := os.StartProcess(program, args, attr)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOEXEC) {
		return c.notExecuted(stderr, err)
	}
	if err != nil {
		return err
	}
	// Nobody else collects this child, so its pid stays its own until Wait.
	defer func() { _ = p.Release() }()
	if c.process, err = procid.OpenPid(p.Pid); err != nil {
		return fmt.Errorf("process %d vanished at its start: %w", p.Pid, err)
	}
	c.exit = openExitInfo(p.Pid)
	c.group.Lead(c.process.Identity())
	return nil
}

// gateScript holds a program back until a line comes; when the agent dies
// before that, the pipe ends, and so does the process.
const gateScript = `read -r go <&3 || exit 125; exec 3<&-; exec "$@"`

// spawnGated is for machines where the process must be moved into its group
// after it was made, and where a group cannot be found again by its record; and
// for limits, which only the agent may raise.
func (c *Container) spawnGated(program string, args []string, attr *os.ProcAttr, stderr io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	attr.Files = append(attr.Files, r)
	argv := []string{"sh", "-c", gateScript, "sh", program}
	if len(args) > 0 {
		argv = append(argv, args[1:]...)
	}
	if err := c.spawn("/bin/sh", argv, attr, stderr); err != nil || c.failed {
		w.Close()
		return err
	}
	c.gate = w
	return nil
}

// Release lets a process run that waits for it. It must be called, once the
// container is on record.
func (c *Container) Release() error {
	if c.gate == nil {
		return nil
	}
	_, err := c.gate.WriteString("go\n")
	err = errors.Join(err, c.gate.Close())
	c.gate = nil
	// The process may have been killed meanwhile.
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

func (c *Container) notExecuted(stderr io.Writer, err error) error {
	c.failed = true
	fmt.Fprintf(stderr, "Failed to execute command: %v\n", err)
	return nil
}

// Find returns the container of a record, made by an earlier agent. Its process
// may have ended: then Wait returns at once.
func (l *Launcher) Find(id string, process procid.Identity) (*Container, error) {
	c := &Container{id: id, group: l.tree.Group(id)}
	c.group.Lead(process)
	if process.IsZero() {
		return c, nil
	}
	p, err := procid.Open(process)
	switch {
	case errors.Is(err, procid.ErrGone):
		return c, nil
	case err != nil:
		return nil, fmt.Errorf("container %s: %w", id, err)
	}
	c.process = p
	c.exit = openExitInfo(process.Pid)
	return c, nil
}

// Identity is the first process, zero if there is none.
func (c *Container) Identity() procid.Identity {
	if c.process == nil {
		return procid.Identity{}
	}
	return c.process.Identity()
}

// Wait returns how the container's first process ended, in the form of
// wait(2), or the context's error. As Apache Mesos's launcher does, an end by
// signal n is told as the exit code 128+n. StatusUnknown means that nobody can tell.
func (c *Container) Wait(ctx context.Context) (int32, error) {
	if c.failed {
		return StatusNotExecuted, nil
	}
	if c.process == nil {
		return StatusUnknown, nil
	}
	if err := c.process.Wait(ctx); err != nil {
		return 0, err
	}
	s, notChild := c.process.Reap()
	switch {
	case notChild != nil:
		return c.exit.status(), nil //nolint:nilerr // a stranger's child: the kernel may know all the same
	case s.Signal != 0:
		return int32(128+s.Signal) << 8, nil
	default:
		return int32(s.Code) << 8, nil
	}
}

// Signal signals the first process.
func (c *Container) Signal(sig syscall.Signal) error {
	if c.process == nil {
		return procid.ErrGone
	}
	return c.process.Signal(sig)
}

// Kill sends SIGKILL to all processes of the container, without waiting for
// their end.
func (c *Container) Kill() error { return c.group.Kill() }

// Destroy kills all processes of the container, waits until none is left and
// removes its cgroup.
func (c *Container) Destroy(ctx context.Context) error {
	c.dropGate()
	const first, last = time.Millisecond, 50 * time.Millisecond
	for pause := first; ; pause = min(2*pause, last) {
		if err := c.group.Kill(); err != nil {
			return fmt.Errorf("container %s: %w", c.id, err)
		}
		if empty, err := c.group.Empty(); err != nil || empty {
			return errors.Join(err, c.group.Remove())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("container %s: some of its processes cannot be killed: %w", c.id, ctx.Err())
		}
	}
}

// Close lets go of the container without ending it; one that waits for
// Release ends.
func (c *Container) Close() {
	c.dropGate()
	c.exit.close()
	if c.process != nil {
		c.process.Close()
	}
}

func (c *Container) dropGate() {
	if c.gate != nil {
		c.gate.Close()
		c.gate = nil
	}
}

// OpenLog opens a file of the sandbox for appending, owned by the user. It
// does not follow a link: the sandbox's owner could lead it anywhere.
func OpenLog(dir, name string, u *User) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return nil, err
	}
	if u != nil && !u.same() {
		if err := f.Chown(int(u.UID), int(u.GID)); err != nil {
			f.Close()
			return nil, fmt.Errorf("giving %s to user %q: %w", name, u.Name, err)
		}
	}
	return f, nil
}

// lookPath finds a program as execvp(3) would: relative to dir if it has a
// slash, in the PATH of env otherwise.
func lookPath(name, dir string, env []string) (string, error) {
	if name == "" {
		return "", errors.New("no program given")
	}
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, d := range filepath.SplitList(pathOf(env)) {
			candidates = append(candidates, filepath.Join(d, name))
		}
	}
	for _, p := range candidates {
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		if st, err := os.Stat(p); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: no such program, or not executable", name)
}

func pathOf(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if p, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return p
		}
	}
	return DefaultPath
}

// DefaultPath is the PATH of executors whose environment has none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
