package unixhttp

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Inherit makes a listener of a socket that listens already: one that systemd
// made, or that an earlier image of this program did. path is its file, empty is its own address.
// Callers are those of Listen; without a group, those of the file's group, when
// its mode lets that write. own tells that Close removes the file. f is closed.
func Inherit(f *os.File, path, group string, own bool) (*Listener, error) {
	defer f.Close()
	fd := int(f.Fd())
	for _, want := range []struct {
		option, value int
		why           string
	}{
		{unix.SO_DOMAIN, unix.AF_UNIX, "it is no unix socket"},
		{unix.SO_TYPE, unix.SOCK_STREAM, "it is no stream socket; write ListenStream="},
		{unix.SO_ACCEPTCONN, 1, "it does not listen; write Accept=no"},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return nil, fmt.Errorf("inherited descriptor %d: %w", fd, err)
		}
		if got != want.value {
			return nil, fmt.Errorf("inherited descriptor %d: %s", fd, want.why)
		}
	}
	nl, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("inherited descriptor %d: %w", fd, err)
	}
	ul, ok := nl.(*net.UnixListener)
	if !ok {
		nl.Close()
		return nil, fmt.Errorf("inherited descriptor %d: it is no unix socket", fd)
	}
	ul.SetUnlinkOnClose(false)
	l := &Listener{UnixListener: ul, uid: uint32(os.Getuid()), path: path}
	l.keep.Store(!own)
	if err := l.belong(group); err != nil {
		ul.Close()
		return nil, err
	}
	return l, nil
}

// belong finds the socket's file and who may call.
func (l *Listener) belong(group string) error {
	if l.path == "" {
		l.path = l.Addr().String()
	}
	var err error
	if l.inode, err = os.Lstat(l.path); err != nil {
		if group != "" {
			return l.admit(group)
		}
		// An abstract address, or a file that was removed: nobody's group, then.
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("inherited socket %s: %w", l.path, err)
	}
	if group != "" {
		return l.admit(group)
	}
	var st unix.Stat_t
	if err := unix.Lstat(l.path, &st); err != nil {
		return fmt.Errorf("inherited socket %s: %w", l.path, err)
	}
	const groupWrites = 0o020
	if st.Mode&groupWrites != 0 && st.Gid != 0 {
		l.gid, l.group = st.Gid, true
	}
	return nil
}

// Path is the file of the socket.
func (l *Listener) Path() string { return l.path }

// Own tells whether Close removes the file.
func (l *Listener) Own() bool { return !l.keep.Load() }

// Keep returns another handle on the socket, which goes on taking connections
// after Close, and lets Close leave its file. The kernel queues who connects
// until somebody accepts on the handle (Inherit).
func (l *Listener) Keep() (*os.File, error) {
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("keep socket %s: %w", l.path, err)
	}
	l.keep.Store(true)
	return f, nil
}
