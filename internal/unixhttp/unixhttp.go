// Package unixhttp serves and calls HTTP over a unix socket, for the daemons of
// one machine. Who may call is decided twice: by the mode of the socket file
// and by the credentials of the peer, which the kernel vouches for
// (SO_PEERCRED, unix(7)). It must never serve a caller that it could not identify.
package unixhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxPath is the room in sockaddr_un for a path and its terminating zero (unix(7)).
const maxPath = 107

// Listener accepts connections of permitted peers only.
type Listener struct {
	*net.UnixListener
	uid   uint32
	gid   uint32
	group bool
	inode os.FileInfo
	path  string
	keep  atomic.Bool // Close leaves the file
}

// CheckPath refuses a socket path that the kernel cannot take.
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("the socket needs a path")
	case len(path) > maxPath:
		return fmt.Errorf("socket path %q has %d bytes, the kernel takes %d at most: choose a shorter one", path, len(path), maxPath)
	}
	return nil
}

// Listen makes the socket with mode 0660, owned by the group when one is named.
// A stale socket file, one that nobody listens on, is replaced; a live one or
// another kind of file is an error. Callers are root, this process's user, and the
// members of the group.
func Listen(ctx context.Context, path, group string) (*Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	l := &Listener{uid: uint32(os.Getuid()), path: path}
	if err := l.admit(group); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket directory: %w; choose another path", err)
	}
	// Two daemons that start at once would both find the old socket stale and
	// one would remove the other's: a lock beside the socket orders them.
	unlock, err := lockBeside(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	// The socket gets its name only after its mode: it is made under a
	// temporary name beside, so nobody can connect in between.
	if l.UnixListener, err = bind(path, l.gid, l.group); err != nil {
		return nil, err
	}
	l.inode, err = os.Lstat(path)
	if err != nil {
		l.UnixListener.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return l, nil
}

// admit lets the members of a group call.
func (l *Listener) admit(group string) error {
	if group == "" {
		return nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("socket group %q: %w; create the group or leave it out", group, err)
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return fmt.Errorf("socket group %q has the id %q: %w", group, g.Gid, err)
	}
	l.gid, l.group = uint32(n), true
	return nil
}

func bind(path string, gid uint32, group bool) (*net.UnixListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer os.RemoveAll(dir)
	// The path through /proc keeps the temporary name within the limit of sockaddr_un.
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer d.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/s", d.Fd())
	ul, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	ul.SetUnlinkOnClose(false)
	tmp := filepath.Join(dir, "s")
	err = os.Chmod(tmp, 0o660)
	if err == nil && group {
		err = os.Chown(tmp, -1, int(gid))
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		ul.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return ul, nil
}

func lockBeside(path string) (func(), error) {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("socket directory: %w", err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		d.Close()
		return nil, fmt.Errorf("lock socket directory %s: %w", filepath.Dir(path), err)
	}
	return func() {
		// A child that is just being started shares the open file until its exec.
		_ = unix.Flock(int(d.Fd()), unix.LOCK_UN)
		d.Close()
	}, nil
}

func removeStale(ctx context.Context, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("socket %s: another kind of file is in the way; remove it or choose another path", path)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("socket %s: another daemon is listening there; stop it or choose another path", path)
	case errors.Is(err, syscall.EAGAIN):
		// As many wait for it as the kernel lets wait (connect(2) of a unix socket).
		return fmt.Errorf("socket %s: another daemon is listening there and has not answered for long; stop it or choose another path", path)
	case errors.Is(err, os.ErrNotExist):
		return nil // whoever listened has just closed it
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}

// Accept returns the next connection of a permitted peer as net.Conn. One of
// another user is kept, so that Handler can answer it with 403, but marked.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &conn{UnixConn: c, allowed: l.allowed(c)}, nil
}

// AcceptPeer returns the next connection of a permitted peer, for a protocol
// other than HTTP. Those of others are closed without an answer.
func (l *Listener) AcceptPeer() (*net.UnixConn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if l.allowed(c) {
			return c, nil
		}
		c.Close()
	}
}

// Close stops listening and removes the socket, unless another daemon has put
// its own in the place.
func (l *Listener) Close() error {
	if st, err := os.Lstat(l.path); err == nil && !l.keep.Load() && os.SameFile(st, l.inode) {
		_ = os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

func (l *Listener) allowed(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	var extra []uint32
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if credErr == nil && l.group {
			extra = peerGroups(int(fd))
		}
	}); err != nil || credErr != nil {
		return false
	}
	return cred.Uid == 0 || cred.Uid == l.uid || l.group && (cred.Gid == l.gid || slices.Contains(extra, l.gid))
}

type conn struct {
	*net.UnixConn
	allowed bool
}

type connKey struct{}

// Server returns a server for Serve on a Listener: it refuses peers that
// may not call, and headers that take too long. Long answers are the handler's to bound.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, ok := r.Context().Value(connKey{}).(*conn)
			if !ok || !c.allowed {
				http.Error(w, "this user may not use the socket: be root, the daemon's user or in its group", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

// Client returns a client whose every request goes to the socket, whatever
// host its URL names. Give each request a context with a deadline.
func Client(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if err := CheckPath(path); err != nil {
				return nil, err
			}
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", path)
		},
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}}
}
