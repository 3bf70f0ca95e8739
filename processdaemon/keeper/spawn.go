package keeper

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// job is one start under way.
type job struct {
	key    string
	others []asker
	// dropped tells that its key was forgotten meanwhile.
	dropped bool
}

// asker waits for a start that another one asked for first.
type asker struct {
	v   *conversation
	seq uint64
}

// conclude tells the others who asked for a start, and returns the answer.
func (k *Keeper) conclude(j *job, e *Entry, err error) *answer {
	k.mu.Lock()
	delete(k.starting, j.key)
	// One that ended at once may have sent its signal before it was in the books.
	k.reap()
	a := k.about(e)
	k.mu.Unlock()
	_ = failpoint.Inject("keeper/started")
	for _, to := range j.others {
		other := a
		other.Seq, other.Existing = to.seq, e != nil
		to.v.answer(other, err)
	}
	return &a
}

// start starts a process, held if that is permitted here.
func (k *Keeper) start(s *Spec) (e *Entry, err error) {
	// Who traces a process is a thread, not a program (ptrace(2)), so all of it
	// happens on the one.
	err = s.attrs().Start(func() (err error) {
		e, err = k.try(s, true)
		if errors.Is(err, errUntraced) {
			e, err = k.try(s, false)
		}
		return err
	})
	return e, err
}

// errUntraced says that tracing is forbidden here (Yama's ptrace_scope 3, some
// sandboxes).
var errUntraced = errors.New("processes cannot be traced here")

// try starts a process in a session and control group of its own, with no
// file but 0, 1 and 2.
//
// The process is held by ptrace(2) from its exec until it is in its groups and
// recorded; PTRACE_O_EXITKILL kills it when the keeper dies before that. So
// nothing ever runs that no record names. Where tracing is forbidden the process
// runs at once and the record follows, after well under a millisecond.
func (k *Keeper) try(s *Spec, hold bool) (*Entry, error) {
	pidfd := -1
	sys := &syscall.SysProcAttr{Setsid: true, Ptrace: hold, PidFD: &pidfd}
	if s.As != nil {
		sys.Credential = &syscall.Credential{Uid: s.As.UID, Gid: s.As.GID, Groups: s.As.Groups}
	}
	if s.Cgroup != nil {
		sys.UseCgroupFD, sys.CgroupFD = true, int(s.Cgroup.Fd())
	}
	var mask unix.Sigset_t
	if hold {
		if err := deafen(&mask); err != nil {
			return nil, err
		}
	}
	pid, err := syscall.ForkExec(s.Path, s.Argv, &syscall.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []uintptr{k.null.Fd(), s.Stdout.Fd(), s.Stderr.Fd()}, Sys: sys,
	})
	if hold {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil) // what was set once can be set again
	}
	if err != nil {
		if hold && errors.Is(err, unix.EPERM) {
			// Tracing may be what is not permitted; if it is something else, the
			// second try says so.
			return nil, errUntraced
		}
		return nil, err
	}
	if pidfd < 0 {
		// Linux before 5.2. The process is held, or a moment old: its number is its own.
		_ = unix.Kill(pid, unix.SIGKILL)
		return nil, errors.New("this kernel has no pidfd for a new process; Linux 5.4 is needed")
	}
	defer unix.Close(pidfd)
	if hold {
		err = hear(pid, pidfd, &mask)
	}
	var e *Entry
	if err == nil {
		e, err = k.settle(s, pid, pidfd, hold)
	}
	if err != nil {
		// By its handle, for it may have been killed, collected, and its number given away.
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	}
	return e, err
}

// deafen blocks the signals of this thread, and with them those of the process that it forks, but
// for the one that tells of the exec; was is what was blocked before. A signal that reached a
// process between its asking to be traced and its exec would stop it, for its tracer to look
// at, which is this thread and waits for the exec itself (vfork(2)): for ever, and with this
// thread the whole program, at its next collection of memory.
func deafen(was *unix.Sigset_t) error {
	var all unix.Sigset_t
	all.Val[0] = ^uint64(0) &^ (1 << (unix.SIGTRAP - 1))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, was); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	return nil
}

// hear waits for the exec of a process that is held, and lets it have the signals that came
// meanwhile, once it runs.
func hear(pid, pidfd int, mask *unix.Sigset_t) error {
	if err := procid.AwaitTrap(pidfd); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("hold the process: %w", err)
	}
	const size = 8 // of the kernel's own set (sigset_t in rt_sigprocmask(2))
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SETSIGMASK, uintptr(pid), size, uintptr(unsafe.Pointer(mask)), 0, 0); errno != 0 {
		return fmt.Errorf("hold the process: its signals: %w", errno)
	}
	return nil
}

// settle does everything that must come before the first instruction.
func (k *Keeper) settle(s *Spec, pid, pidfd int, held bool) (*Entry, error) {
	_ = failpoint.Inject("keeper/forked")
	id, err := procid.Of(pid)
	if err != nil {
		return nil, err
	}
	for _, f := range s.Procs {
		if _, err := f.WriteString(strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("add pid %d to cgroup: %w", pid, err)
		}
	}
	if protected || s.OOMScoreAdj != 0 || inheritedScore < 0 {
		// It inherits the keeper's protection otherwise.
		err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(oomScore(s.OOMScoreAdj))), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("set oom_score_adj: %w", err)
		}
	}
	if err := s.attrs().Apply(pid); err != nil {
		return nil, err
	}
	e := &Entry{Key: s.Key, ID: id, Tag: s.Tag}
	if err := k.store.create(e); err != nil {
		return nil, fmt.Errorf("record the process: %w; free disk space or mend the data directory", err)
	}
	_ = failpoint.Inject("keeper/recorded")
	k.mu.Lock()
	j := k.starting[s.Key]
	dropped := j != nil && j.dropped
	if !dropped {
		if k.enter(e); e.Ended {
			k.save(e) // somebody killed it while it was held
		}
	}
	k.mu.Unlock()
	if dropped {
		_ = k.store.remove(s.Key) // the next keeper finds that it has ended
		return nil, fmt.Errorf("%s was forgotten while it was started", s.Key)
	}
	if held {
		if err := unix.PtraceDetach(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			// It is in the books and will be killed, so that its end is told like any other.
			k.log("let pid %d run: %v", pid, err)
			_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		}
	}
	return e, nil
}
