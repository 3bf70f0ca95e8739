package executor

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"tandem/api"
	"tandem/internal/execstream"
)

// Interactive is a Runtime that can run commands beside a task, with input.
type Interactive interface {
	// AllowSession returns why the operator forbids sessions, or nil. loopback
	// tells that their connections stay on the machine.
	AllowSession(loopback bool) error
	// Session runs a command in a running task until it ends, and returns its exit
	// code. When the context ends first, the command is killed.
	Session(ctx context.Context, taskID string, req api.ExecRequest, t execstream.Terminal) (code int, err error)
}

// Limits of sessions.
const (
	// sessionWait is how long one waits for its connection, and that for its token.
	sessionWait = 15 * time.Second
	// maxSessions may be open in a taskgroup.
	maxSessions = 8
)

// openSession listens for the one who has asked, with a port and a token for
// this session alone. Whoever else connects is sent away and ends nothing.
func (e *Executor) openSession(x Interactive, id string, req api.ExecRequest) func(context.Context, *api.MessageResult) error {
	return func(ctx context.Context, result *api.MessageResult) error {
		addr, err := netip.ParseAddr(e.cfg.NodeIP())
		if err != nil {
			return errors.New("the agent is known by its name only, and a session needs its address; start the agent with --ip")
		}
		if err := x.AllowSession(addr.IsLoopback()); err != nil {
			return err
		}
		if e.messages.sessions.Add(1) > maxSessions {
			e.messages.sessions.Add(-1)
			return fmt.Errorf("%d sessions are open in this taskgroup, which is as many as there may be; end one", maxSessions)
		}
		listen := net.ListenConfig{}
		l, err := listen.Listen(ctx, "tcp", net.JoinHostPort(addr.String(), "0"))
		if err != nil {
			e.messages.sessions.Add(-1)
			return fmt.Errorf("listen for the session: %w", err)
		}
		token := rand.Text()
		result.Exec = &api.ExecSession{Token: token}
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			result.Exec.Port = a.Port
		}
		e.workers.Go(func() {
			defer e.messages.sessions.Add(-1)
			conn, in := e.acceptSession(l, token)
			if conn == nil {
				e.log.Warn("nobody has come for a session", "task", id)
				return
			}
			defer conn.Close()
			e.log.Info("session begins", "task", id, "program", req.Command[0], "tty", req.TTY)
			err := e.serveSession(x, id, req, conn, in)
			e.log.Info("session is over", "task", id, "error", err)
		})
		return nil
	}
}

// acceptSession returns the connection that brings the token; nil when none does in time.
func (e *Executor) acceptSession(l net.Listener, token string) (net.Conn, *bufio.Reader) {
	defer l.Close()
	ctx, cancel := context.WithTimeout(e.work, sessionWait)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil, nil
		}
		// One that says nothing must not keep the right one waiting for long.
		_ = conn.SetDeadline(time.Now().Add(sessionWait / 5))
		in := bufio.NewReaderSize(conn, 4<<10)
		got := make([]byte, len(token)+1)
		if _, err := io.ReadFull(in, got); err == nil && subtle.ConstantTimeCompare(got, []byte(token+"\n")) == 1 {
			_ = conn.SetDeadline(time.Time{})
			return conn, in
		}
		conn.Close()
	}
}

// serveSession lasts until the command ends, the connection breaks or the executor ends.
func (e *Executor) serveSession(x Interactive, id string, req api.ExecRequest, conn net.Conn, in io.Reader) error {
	return execstream.Serve(e.work, conn, in, req.Stdin, func(ctx context.Context, t execstream.Terminal) (int, error) {
		return x.Session(ctx, id, req, t)
	})
}
