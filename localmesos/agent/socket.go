package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tandem/localmesos/internal/wire"
)

// socket is the unix socket that executors connect to, with only the executor
// API behind it. Executors run as users of all kinds, so anybody may open it, as
// with Apache Mesos; but nobody is served who is not root, the agent's own user or
// the user of an executor here.
type socket struct {
	net.Listener
	path   string
	server *http.Server
	mu     sync.Mutex
	users  map[uint32]bool
}

// listenOnSocket makes the socket, if there is to be one. A file that a dead
// agent left is replaced, that of a live one is not.
func (a *Agent) listenOnSocket(ctx context.Context) error {
	if !a.flags.HTTPExecutorDomainSockets {
		return nil
	}
	path, err := filepath.Abs(a.flags.socketPath())
	if err != nil {
		return fmt.Errorf("domain_socket_location: %w", err)
	}
	if len(path) >= maxSocketPath {
		return fmt.Errorf("domain_socket_location: %s has %d bytes, a socket's path less than %d; give a shorter one", path, len(path), maxSocketPath)
	}
	if err := removeStale(ctx, path); err != nil {
		return fmt.Errorf("domain_socket_location: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("domain_socket_location: %w; give a path in a directory that can be written", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // see socket
		return errors.Join(fmt.Errorf("domain_socket_location: %w", err), l.Close())
	}
	a.socket = &socket{Listener: l, path: path, users: map[uint32]bool{0: true, uint32(os.Geteuid()): true}}
	return nil
}

func removeStale(ctx context.Context, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is there and no socket; remove it or give another path", path)
	}
	const patience = time.Second
	d := net.Dialer{Timeout: patience}
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		c.Close()
		return fmt.Errorf("%s is that of another agent; give another path", path)
	}
	return os.Remove(path)
}

// serveSocket serves the executor API on the socket.
func (a *Agent) serveSocket() {
	s := a.socket
	if s == nil {
		return
	}
	all := a.server.Handler
	s.server = &http.Server{ConnContext: a.server.ConnContext, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if routeOf(r) != executorPath {
				wire.Text(w, http.StatusNotFound, "404 Not Found.")
				return
			}
			all.ServeHTTP(w, r)
		})}
	a.work.Go(func() {
		if err := s.server.Serve(s); !errors.Is(err, http.ErrServerClosed) {
			a.end(fmt.Errorf("serving the executors' socket: %w", err))
		}
	})
}

// Accept waits for the next connection of somebody who may connect.
func (s *socket) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil || s.allowed(c) {
			return c, err
		}
		c.Close()
	}
}

func (s *socket) allowed(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil || err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[peer.Uid]
}

// admit lets a user's processes connect; s may be nil.
func (s *socket) admit(uid uint32) {
	if s != nil {
		s.mu.Lock()
		s.users[uid] = true
		s.mu.Unlock()
	}
}

// close ends the socket and removes its file; s may be nil.
func (s *socket) close() {
	if s == nil {
		return
	}
	if s.server != nil {
		s.server.Close()
	}
	_ = s.Close()
}
