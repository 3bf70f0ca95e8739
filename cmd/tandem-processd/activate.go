package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tandem/internal/unixhttp"
)

const (
	// socketName is the FileDescriptorName= of the socket, which matters when systemd
	// passes more than one.
	socketName = "processd"
	// firstPassed is the first descriptor that systemd passes, see sd_listen_fds(3).
	firstPassed = 3
	// handedOver is where the image before this one says which socket it leaves:
	// descriptor, "own" or "systemd", path.
	handedOver = "TANDEM_PROCESSD_SOCKET_FD"
	// socketGroup has the socket when no other is named.
	socketGroup = "tandem"
)

// listen returns the socket to serve on: the one that the image before this one
// served on, the one that systemd made, or a new one.
func listen(ctx context.Context, o *options) (*unixhttp.Listener, error) {
	l, err := handed(o)
	if l != nil || err != nil {
		return l, err
	}
	if l, err = activated(o); l != nil || err != nil {
		return l, err
	}
	group := o.group
	if group == "" {
		group = usualGroup()
	}
	return unixhttp.Listen(ctx, o.socket, group)
}

// usualGroup is the one that packages make for this socket, where there is one and
// the daemon may give it away. A socket of systemd's has the group of its unit.
func usualGroup() string {
	if os.Geteuid() != 0 {
		return ""
	}
	if _, err := user.LookupGroup(socketGroup); err != nil {
		return ""
	}
	return socketGroup
}

// take removes a variable from the environment, so that nothing that is started
// later takes it for its own.
func take(name string) string {
	v := os.Getenv(name)
	_ = os.Unsetenv(name) // fails for malformed names only
	return v
}

func handed(o *options) (*unixhttp.Listener, error) {
	text := take(handedOver)
	if text == "" {
		return nil, nil
	}
	words := strings.SplitN(text, " ", 3)
	fd, err := strconv.Atoi(words[0])
	if err != nil || len(words) != 3 {
		return nil, fmt.Errorf("%s=%q: it is set by the daemon itself; unset it", handedOver, text)
	}
	unix.CloseOnExec(fd)
	l, err := unixhttp.Inherit(os.NewFile(uintptr(fd), "socket"), words[2], o.group, words[1] == "own")
	if err != nil {
		return nil, err
	}
	if l.Own() && l.Path() != o.socket {
		// The configuration has changed; who calls the old place is told so.
		return nil, l.Close()
	}
	return l, nil
}

// activated returns the socket that systemd passes, if it does: sd_listen_fds(3).
func activated(o *options) (*unixhttp.Listener, error) {
	pid, count, names := take("LISTEN_PID"), take("LISTEN_FDS"), take("LISTEN_FDNAMES")
	if pid == "" || count == "" {
		return nil, nil
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil // meant for another process
	}
	n, err := strconv.Atoi(count)
	const most = 1024
	if err != nil || n < 0 || n > most {
		return nil, fmt.Errorf("LISTEN_FDS=%q: want a number of descriptors", count)
	}
	if n == 0 {
		return nil, nil
	}
	at := 0
	if n > 1 {
		if at = slices.Index(strings.Split(names, ":"), socketName); at < 0 || at >= n {
			return nil, fmt.Errorf("LISTEN_FDS=%d, LISTEN_FDNAMES=%q: none of the sockets is called %s; write FileDescriptorName=%s", n, names, socketName, socketName)
		}
	}
	for fd := firstPassed; fd < firstPassed+n; fd++ {
		unix.CloseOnExec(fd)
		if fd != firstPassed+at {
			_ = unix.Close(fd) // nobody else uses it
		}
	}
	l, err := unixhttp.Inherit(os.NewFile(uintptr(firstPassed+at), "socket"), "", o.group, false)
	if err != nil {
		return nil, errors.Join(errors.New("socket activation"), err)
	}
	return l, nil
}
