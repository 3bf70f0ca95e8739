package unpack

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights on files of the first version of Landlock, and those that came
// later, by the version (landlock(7), Documentation/userspace-api/landlock.rst).
const (
	accessFirst = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
	// accessNeeded: no execution, no special files, no removal of directories.
	// Refer is for hard links between directories.
	accessNeeded = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER
)

// landlock lets the process reach nothing but its working directory by name, and
// no network, abstract socket or process at all. Files that are open stay open.
// It returns the version that the kernel has.
func landlock() (abi int, err error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	abi = int(v)
	attr := unix.LandlockRulesetAttr{Access_fs: accessFirst}
	if abi >= 2 {
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		attr.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		// Without this correction a thread could not signal its siblings, as the runtime does.
		const signals = 1 << 1
		fixed, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
		if errno == 0 && fixed&signals != 0 {
			attr.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
		}
	}
	// Trailing zeros are fine for a kernel that knows less fields.
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0) //nolint:gosec // as the call wants it
	if errno != 0 {
		return 0, errno
	}
	defer unix.Close(int(rules))
	here, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(here)
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: accessNeeded & attr.Access_fs, Parent_fd: int32(here)}
	_, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0) //nolint:gosec // as the call wants it
	if errno != 0 {
		return 0, errno
	}
	_, err = onAllThreads(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0)
	return abi, err
}
