package processdaemon

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup"
	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// launch is one command to run.
type launch struct {
	argv  []string
	path  string // the program, as execve(2) shall get it
	dir   string
	env   []string
	as    *account
	out   *os.File
	err   *os.File
	group *cgroup.Group
	// record is called with the new process before it runs its first
	// instruction; when it fails, the process never runs.
	record func(procid.Identity) error
}

// spawn starts a process in a session and control group of its own, with no
// file but 0, 1 and 2. The caller holds the reaper's lock for forks.
//
// The process is held by ptrace(2) from its exec until it has its limits and
// groups and is recorded; PTRACE_O_EXITKILL kills it when the daemon dies before
// that. So nothing ever runs that no record names. Where tracing is forbidden
// (Yama's ptrace_scope 3, some sandboxes) the process runs at once and the
// groups and the record follow, which leaves a window of well under a millisecond.
func (l *launch) spawn() (*procid.Process, error) {
	type result struct {
		p   *procid.Process
		err error
	}
	ch := make(chan result, 1)
	// A tracer is a thread, not a process: all steps must come from one.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := l.spawnHeld(true)
		if errors.Is(err, unix.EPERM) && p == nil {
			// Tracing may be what is not permitted; if it is something else, the
			// second try says so.
			p, err = l.spawnHeld(false)
		}
		ch <- result{p, err}
	}()
	r := <-ch
	return r.p, r.err
}

func (l *launch) spawnHeld(hold bool) (*procid.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	sys := &syscall.SysProcAttr{Setsid: true, Ptrace: hold, Credential: l.as.cred}
	dir, err := l.group.OpenForClone()
	if err != nil {
		return nil, err
	}
	if dir != nil {
		defer dir.Close()
		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
	}
	pid, err := syscall.ForkExec(l.path, l.argv, &syscall.ProcAttr{
		Dir: l.dir, Env: l.env, Files: []uintptr{null.Fd(), l.out.Fd(), l.err.Fd()}, Sys: sys,
	})
	if err != nil {
		return nil, err
	}
	p, err := l.settle(pid, hold, dir != nil)
	if err != nil {
		if p != nil {
			p.Close()
		}
		// Not collected yet, so the number cannot be another's.
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		return nil, err
	}
	return p, nil
}

// settle does everything that must come before the first instruction.
func (l *launch) settle(pid int, held, cloned bool) (*procid.Process, error) {
	if held {
		var ws unix.WaitStatus
		for {
			_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("wait for the exec: %w", err)
			}
			break
		}
		if !ws.Stopped() {
			return nil, errors.New("the process was killed while it started")
		}
		if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
			return nil, fmt.Errorf("hold the process: %w", err)
		}
	}
	p, err := procid.OpenPid(pid)
	if err != nil {
		return nil, err
	}
	join := l.group.Add
	if cloned {
		join = l.group.AddCloned
	}
	if err := join(pid); err != nil {
		return p, err
	}
	if err := failpoint.Inject("processdaemon/spawned"); err != nil {
		return p, err
	}
	if err := l.record(p.Identity()); err != nil {
		return p, err
	}
	if err := failpoint.Inject("processdaemon/recorded"); err != nil {
		return p, err
	}
	if held {
		if err := unix.PtraceDetach(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return p, fmt.Errorf("let the process run: %w", err)
		}
	}
	return p, nil
}

// setRlimits gives the daemon the limits that its processes are to inherit,
// so that they do not depend on how it was started: 65536 files (databases ask
// for it) as far as the hard limit goes, and no core files in the sandbox.
// prlimit(2) on the held process would need CAP_SYS_RESOURCE for other users.
func setRlimits() error {
	const files = 65536
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	if err == nil {
		l.Cur = min(files, l.Max)
		// Through package syscall, which otherwise gives children back the limit
		// that this program was started with.
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
	var core syscall.Rlimit
	if err == nil {
		err = syscall.Getrlimit(syscall.RLIMIT_CORE, &core)
	}
	if err == nil {
		core.Cur = 0
		err = syscall.Setrlimit(syscall.RLIMIT_CORE, &core)
	}
	if err != nil {
		return fmt.Errorf("set resource limits: %w", err)
	}
	return nil
}

// closeInherited keeps the files that whoever started the daemon left open
// from reaching its processes. All that Go opens itself is closed on exec.
func closeInherited() error {
	const first = 3
	if err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	return nil
}

// openOutput opens a file of the sandbox for appending. The directory may be
// writable by the task's user, so a symlink or a pipe in the place of the
// file is refused rather than followed.
func openOutput(dir, name string) (*os.File, error) {
	path := dir + "/" + name
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, fmt.Errorf("output file: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("output file %s is not a regular file; remove it", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
