package unpack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a child may use beyond what it has when it starts, see setrlimit(2).
const (
	memory     = 1 << 30
	cpuSeconds = 1800
	openFiles  = 256
)

// confine gives up every right that unpacking does not need, for good: the
// directory is all there is, the user owns it. It returns what it did and what
// this machine has not got. The order is forced: a new root needs capabilities, and
// an unprivileged process may restrict itself only without a way to gain rights.
func confine(j *Job) (how, missing string, err error) {
	if err := unix.Fchdir(toFile); err != nil {
		return "", "", err
	}
	if err := limit(j); err != nil {
		return "", "", err
	}
	syscall.Umask(0o022)
	if j.Jail {
		if err := syscall.Chroot("."); err != nil {
			return "", "", fmt.Errorf("chroot: %w", err)
		}
		if err := syscall.Chdir("/"); err != nil {
			return "", "", err
		}
		how = "root directory, "
	}
	if err := j.become(); err != nil {
		return "", "", err
	}
	if _, err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return "", "", fmt.Errorf("no_new_privs: %w", err)
	}
	if j.Jail {
		if err := dropCapabilities(); err != nil {
			return "", "", err
		}
	}
	abi, err := landlock()
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return how + "limits", "landlock, which this kernel has not got or not enabled", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("landlock: %w", err)
	}
	return how + "limits, landlock " + strconv.Itoa(abi), "", nil
}

// become takes on the identity of the job's user, if it names one.
func (j *Job) become() error {
	if j.As == nil {
		return nil
	}
	parent := os.Getppid()
	if err := become(j.As); err != nil {
		return err
	}
	// The end with the daemon was lost with the old identity, see PR_SET_PDEATHSIG(2const).
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the daemon: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the daemon is gone")
	}
	return nil
}

// become is for all threads, see package syscall.
func become(c *syscall.Credential) error {
	groups := make([]int, len(c.Groups))
	for i, g := range c.Groups {
		groups[i] = int(g)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(int(c.Gid), int(c.Gid), int(c.Gid)); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setresuid(int(c.Uid), int(c.Uid), int(c.Uid)); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	return nil
}

// onAllThreads makes a system call on each thread of the process, or on this one
// where libc owns the threads (in tests that are built with cgo).
func onAllThreads(trap, a1, a2, a3 uintptr) (uintptr, error) {
	r, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3)
	if errno == unix.ENOTSUP {
		r, _, errno = syscall.Syscall(trap, a1, a2, a3)
	}
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// dropCapabilities is for a child that stays root: without them it is a user
// that owns root's files.
func dropCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, err := onAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&none)), 0); err != nil { //nolint:gosec // capset(2) takes pointers
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

func limit(j *Job) error {
	// The runtime reserves much more address space than it uses, and the race
	// detector even more, so the limits are on what comes on top.
	pages := func(field int) uint64 {
		b, err := os.ReadFile("/proc/self/statm")
		fields := bytes.Fields(b)
		if err != nil || len(fields) <= field {
			return 0
		}
		n, _ := strconv.ParseUint(string(fields[field]), 10, 64) // the kernel wrote it
		return n * uint64(os.Getpagesize())
	}
	const size, data = 0, 5
	for _, l := range []struct {
		what int
		most uint64
	}{
		{unix.RLIMIT_FSIZE, uint64(j.MaxBytes)},
		{unix.RLIMIT_CPU, cpuSeconds},
		{unix.RLIMIT_DATA, pages(data) + memory},
		{unix.RLIMIT_AS, pages(size) + 2*memory},
		{unix.RLIMIT_NOFILE, openFiles},
		{unix.RLIMIT_CORE, 0},
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.what, &now); err != nil {
			return fmt.Errorf("getrlimit: %w", err)
		}
		now.Max = min(now.Max, l.most)
		now.Cur = now.Max
		if err := unix.Setrlimit(l.what, &now); err != nil {
			return fmt.Errorf("setrlimit: %w", err)
		}
	}
	return nil
}
