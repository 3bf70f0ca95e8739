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

// session is what goes on over the connection of one.
type session struct {
	task string
	// what names it in the log.
	what string
	// stdin tells that input comes.
	stdin bool
	// run lasts as long as the session.
	run func(context.Context, execstream.Terminal) (int, error)
}

// openExec opens a session for a command.
func (e *Executor) openExec(x Interactive, id string, req api.ExecRequest) func(context.Context, *api.MessageResult) error {
	s := session{task: id, what: "command " + req.Command[0], stdin: req.Stdin, run: func(ctx context.Context, t execstream.Terminal) (int, error) {
		return x.Session(ctx, id, req, t)
	}}
	return func(ctx context.Context, result *api.MessageResult) error { return e.openSession(ctx, x, s, result) }
}

// openSession listens for the one who has asked, with a port and a token for
// this session alone. Whoever else connects is sent away and ends nothing.
func (e *Executor) openSession(ctx context.Context, x Interactive, s session, result *api.MessageResult) error {
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
			e.log.Warn("nobody has come for a session", "task", s.task)
			return
		}
		defer conn.Close()
		e.log.Info("session begins", "task", s.task, "what", s.what)
		// It lasts until run returns, the connection breaks or the executor ends.
		err := execstream.Serve(e.work, conn, in, s.stdin, s.run)
		e.log.Info("session is over", "task", s.task, "error", err)
	})
	return nil
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
