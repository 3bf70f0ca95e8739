package scheduler

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"tandem/api"
	"tandem/internal/execstream"
	"tandem/scheduler/wire"
)

// postExec opens a session in a task and hands the connection over to it. The
// executor tells a port and a token, which go no further than this: whoever asks
// is connected by the scheduler and need not reach the agent.
func (s *Scheduler) postExec(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), wire.ExecProtocol) {
		w.Header().Set("Upgrade", wire.ExecProtocol)
		writeError(w, &apiError{http.StatusUpgradeRequired, wire.Problem{Code: wire.CodeInvalid, Message: "a session needs a connection of its own: send Connection: Upgrade and Upgrade: " + wire.ExecProtocol}})
		return
	}
	agent, err := s.openExec(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	defer agent.Close()
	user, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, fmt.Errorf("hand the connection over: %w", err))
		return
	}
	defer user.Close()
	// The server's time for reading a request does not count any more.
	if user.SetDeadline(time.Time{}) != nil {
		return
	}
	stop := context.AfterFunc(r.Context(), func() { user.Close(); agent.Close() })
	defer stop()
	if _, err := fmt.Fprintf(user, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", wire.ExecProtocol); err != nil {
		return
	}
	// A command that does not read its input would hide that the user has gone.
	hangUp := func() { execstream.Abrupt(agent); agent.Close() }
	defer execstream.OnHangup(r.Context(), user, hangUp)()
	var both sync.WaitGroup
	both.Go(func() {
		in := &source{r: buffered}
		if _, err := io.Copy(agent, in); err == nil || in.err != nil {
			hangUp() // the user has gone, and with that the session is over
		}
		// The command has ended and reads no more. Input that is left unread would
		// make the kernel throw away what the user has not got yet; see close(2), tcp(7).
		_, _ = io.Copy(io.Discard, buffered)
	})
	both.Go(func() {
		_, _ = io.Copy(user, agent) // whoever has gone, the session is over
		_ = user.SetReadDeadline(time.Now().Add(execLinger))
		if c, ok := user.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite() // one that is gone needs no end
		}
	})
	both.Wait()
}

// source tells whether it was the reading that failed.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// execLinger is how long the end of a session waits for the user to hang up.
const execLinger = 5 * time.Second

// openExec has the executor wait, and connects to it.
func (s *Scheduler) openExec(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, api.MaxMessage)
	var req wire.ExecRequest
	if err := decodeBody(r, &req, `{"command": ["/bin/sh"]}`); err != nil {
		return nil, err
	}
	return s.connectSession(ctx, r.PathValue("namespace"), r.PathValue("name"), &api.Message{Type: api.MessageExec, Task: req.Task, Exec: &req.ExecRequest})
}

// connectSession sends a message that opens a session, and connects to that.
func (s *Scheduler) connectSession(ctx context.Context, namespace, name string, m *api.Message) (net.Conn, error) {
	result, host, err := s.say(ctx, namespace, name, m)
	if err != nil {
		return nil, err
	}
	if result.Exec == nil {
		return nil, conflict("the executor of taskgroup %s opened no session", name)
	}
	// Only the port is the executor's to choose: it cannot send the scheduler elsewhere.
	address := net.JoinHostPort(host, strconv.Itoa(result.Exec.Port))
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, &apiError{http.StatusBadGateway, wire.Problem{Code: wire.CodeUnavailable, Message: fmt.Sprintf("session of taskgroup %s: %v; does a firewall keep the scheduler from ports of the agent?", name, err)}}
	}
	if _, err := conn.Write([]byte(result.Exec.Token + "\n")); err != nil {
		conn.Close()
		return nil, fmt.Errorf("session at %s: %w", address, err)
	}
	return conn, nil
}
