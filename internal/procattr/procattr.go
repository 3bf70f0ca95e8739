// Package procattr gives a process that is started the attributes for which
// os/exec has no field: no_new_privs, umask, network namespace, resource limits,
// niceness. It must never leave another thread of this program with one of them.
//
// Most are inherited from the thread that forks; these are set on a thread that is
// thrown away afterwards (Start). Limits belong to a whole program and are given to
// a process from outside (Apply), best while it is held before its first instruction. See prctl(2), unshare(2), setns(2), prlimit(2), setpriority(2).
package procattr

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Attrs are attributes of a process. The zero value changes nothing.
type Attrs struct {
	// NoNewPrivs takes their effect from setuid bits and file capabilities, for
	// the process and all that it forks, for ever.
	NoNewPrivs bool
	// Umask is that of open(2); nil is the caller's.
	Umask *int
	// NetNS is a network namespace; nil is the caller's.
	NetNS *os.File
	// Nice is -20 (first) to 19 (last); nil is the caller's.
	Nice    *int
	Rlimits []Rlimit
}

// Rlimit is a resource limit, see getrlimit(2).
type Rlimit struct {
	// Name is one of Names, without RLIMIT_, in lower case.
	Name string `json:"name"`
	// Soft and Hard are in the resource's unit; Unlimited is none.
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Unlimited is no limit, RLIM_INFINITY.
const Unlimited = unix.RLIM_INFINITY

var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
	"fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS, "memlock": unix.RLIMIT_MEMLOCK,
	"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO, "rttime": unix.RLIMIT_RTTIME,
	"sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

// Names are the resources of an Rlimit, sorted.
func Names() []string {
	out := make([]string, 0, len(resources))
	for n := range resources {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Check tells what is wrong with a limit, nil if nothing is.
func (r *Rlimit) Check() error {
	if _, ok := resources[r.Name]; !ok {
		return fmt.Errorf("unknown resource %q; want one of %s", r.Name, strings.Join(Names(), ", "))
	}
	if r.Soft > r.Hard {
		return fmt.Errorf("%s: the soft limit %s is above the hard limit %s", r.Name, show(r.Soft), show(r.Hard))
	}
	return nil
}

func show(v uint64) string {
	if v == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(v, 10)
}

// Start calls fork on a thread that has what a child inherits from it: no_new_privs,
// umask, niceness and network namespace. All that the child needs of that very
// thread, such as ptrace(2), must be done within fork.
func (a *Attrs) Start(fork func() error) error {
	if !a.NoNewPrivs && a.Umask == nil && a.NetNS == nil && a.Nice == nil {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return fork()
	}
	return thrownAway(func() error {
		if err := a.become(); err != nil {
			return err
		}
		return fork()
	})
}

// thrownAway calls f on a thread that ends with it.
func thrownAway(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end: it is held, so that the next try gets another.
			defer runtime.UnlockOSThread()
			done <- thrownAway(f)
			return
		}
		// Without unlocking: so the thread ends with this function.
		done <- f()
	}()
	return <-done
}

// become changes this thread.
func (a *Attrs) become() error {
	if a.Umask != nil {
		// Threads share the umask otherwise.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("umask for one process: %w", err)
		}
		unix.Umask(*a.Umask)
	}
	if a.Nice != nil {
		// It is a thread's own on Linux, see setpriority(2).
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, *a.Nice); err != nil {
			return fmt.Errorf("set nice %d: %w; it takes root with CAP_SYS_NICE to go below 0", *a.Nice, err)
		}
	}
	if a.NetNS != nil {
		if err := unix.Setns(int(a.NetNS.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", a.NetNS.Name(), err)
		}
	}
	if a.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	return nil
}

// Apply gives a process what can be given from outside: its resource limits. One
// that has ended is no error.
func (a *Attrs) Apply(pid int) error {
	err := a.limit(pid)
	if errors.Is(err, unix.EPERM) {
		// Root without CAP_SYS_RESOURCE, as in many containers, may lower the limits
		// of a process only whose ids are its own real ones.
		err = thrownAway(func() error {
			if err := takeRealIDs(pid); err != nil {
				return err
			}
			return a.limit(pid)
		})
	}
	return err
}

func (a *Attrs) limit(pid int) error {
	for i := range a.Rlimits {
		r := &a.Rlimits[i]
		if err := r.Check(); err != nil {
			return fmt.Errorf("resource limit: %w", err)
		}
		err := unix.Prlimit(pid, resources[r.Name], &unix.Rlimit{Cur: r.Soft, Max: r.Hard}, nil)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set resource limit %s to %s (hard %s): %w; it takes CAP_SYS_RESOURCE to go above the hard limit of the process daemon", r.Name, show(r.Soft), show(r.Hard), err)
		}
	}
	return nil
}

// takeRealIDs gives this thread, and no other, the real user and group of a process.
func takeRealIDs(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil // ESRCH says that it ended after the file was opened
	}
	if err != nil {
		return fmt.Errorf("resource limits: %w", err)
	}
	var uid, gid uintptr
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "Uid: %d", &uid) // other lines do not match
		_, _ = fmt.Sscanf(line, "Gid: %d", &gid) // likewise
	}
	const keep = ^uintptr(0)
	// Raw, because package syscall would change all threads.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, keep, keep); errno != 0 {
		return fmt.Errorf("resource limits: take group %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, keep, keep); errno != 0 {
		return fmt.Errorf("resource limits: take user %d: %w", uid, errno)
	}
	return nil
}

// OpenNetNS opens a network namespace by its path, such as /run/netns/name or
// /proc/PID/ns/net. inode, unless it is 0, must be its inode number: another
// namespace may have come into the place. The caller closes it.
func OpenNetNS(path string, inode uint64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	err = func() error {
		kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
		if err != nil || kind != unix.CLONE_NEWNET {
			return fmt.Errorf("%s is not a network namespace; name one such as /run/netns/NAME", path)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return fmt.Errorf("network namespace %s: %w", path, err)
		}
		if inode != 0 && st.Ino != inode {
			return fmt.Errorf("network namespace %s: it has the inode %d, not %d: another one has taken its place", path, st.Ino, inode)
		}
		return nil
	}()
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
