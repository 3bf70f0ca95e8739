package fetch

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"tandem/localmesos/agent/internal/container"
)

// noBlock keeps an open of a fifo from waiting for its writer.
const noBlock = unix.O_NONBLOCK | unix.O_CLOEXEC

// asUser runs f with the file-system rights of a user, on a thread of its own:
// the kernel has these ids per thread (setfsuid(2)), and what f makes belongs to
// the user from the start. The thread ends with f, so no other work meets it.
func asUser(u *container.User, f func() error) error {
	if !u.Switches() {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the runtime then throws the thread away.
		runtime.LockOSThread()
		if err := become(u); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func become(u *container.User) error {
	var groups *uint32
	if len(u.Groups) > 0 {
		groups = &u.Groups[0]
	}
	// Not syscall.Setgroups, which is for all threads.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(groups)), 0); errno != 0 {
		return fmt.Errorf("taking the groups of user %q: %w; run the agent as root, or with --no-switch_user", u.Name, errno)
	}
	// These two report nothing; the second call tells what the first came to.
	_, _ = unix.SetfsgidRetGid(int(u.GID))
	_, _ = unix.SetfsuidRetUid(int(u.UID))
	gid, gerr := unix.SetfsgidRetGid(-1)
	uid, uerr := unix.SetfsuidRetUid(-1)
	if err := errors.Join(gerr, uerr); err != nil {
		return fmt.Errorf("becoming user %q: %w", u.Name, err)
	}
	if uint32(gid) != u.GID || uint32(uid) != u.UID {
		return fmt.Errorf("becoming user %q: not permitted; run the agent as root, or with --no-switch_user", u.Name)
	}
	return nil
}
