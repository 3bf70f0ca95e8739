package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"tandem/api"
	"tandem/internal/execstream"
)

// parrot is a runtime whose sessions say what they read, until their input ends.
type parrot struct {
	forbidden error
	ended     chan error
}

func (p *parrot) AllowSession(bool) error { return p.forbidden }

func (p *parrot) Session(ctx context.Context, _ string, _ api.ExecRequest, t execstream.Terminal) (int, error) {
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(t.Stdout, t.Stdin)
	}()
	select {
	case <-copied:
		p.ended <- nil
		return 7, nil
	case <-ctx.Done():
		p.ended <- ctx.Err()
		return -1, ctx.Err()
	}
}

// sessions is an executor that can open some, and ends with the test.
func sessions(t *testing.T) (*Executor, context.CancelFunc) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	e := &Executor{cfg: Config{Endpoint: "127.0.0.1:5051"}, log: slog.New(slog.DiscardHandler), work: ctx}
	t.Cleanup(func() {
		end()
		e.workers.Wait()
	})
	return e, end
}

// open asks for a session and returns it.
func open(t *testing.T, e *Executor, p *parrot) *api.ExecSession {
	t.Helper()
	var result api.MessageResult
	if err := e.openExec(p, "task-a", api.ExecRequest{Command: []string{"cat"}, Stdin: true})(t.Context(), &result); err != nil {
		t.Fatal(err)
	}
	return result.Exec
}

// visit connects and says the token.
func visit(t *testing.T, port int, token string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, token+"\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestSessionIsForTheOneWithTheToken(t *testing.T) {
	t.Parallel()
	e, _ := sessions(t)
	p := &parrot{ended: make(chan error, 1)}
	s := open(t, e, p)
	for _, wrong := range []string{strings.Repeat("x", len(s.Token)), s.Token[1:] + "x", ""} {
		stranger := visit(t, s.Port, wrong)
		_ = stranger.(*net.TCPConn).CloseWrite()
		if said, _ := io.ReadAll(stranger); len(said) > 0 {
			t.Errorf("a stranger with %q hears %q", wrong, said)
		}
	}
	conn := visit(t, s.Port, s.Token)
	out := execstream.NewWriter(conn)
	if err := errors.Join(out.Send(execstream.Stdin, []byte("hello")), out.Send(execstream.Stdin, nil)); err != nil {
		t.Fatal(err)
	}
	in, heard := execstream.NewReader(conn), ""
	for {
		kind, payload, err := in.Next()
		if err != nil {
			t.Fatalf("%v after %q", err, heard)
		}
		heard += fmt.Sprintf("%d:%s ", kind, payload)
		if kind == execstream.Ended {
			break
		}
	}
	if want := fmt.Sprintf("%d:hello %d:{\"code\":7} ", execstream.Stdout, execstream.Ended); heard != want {
		t.Errorf("heard %q, want %q", heard, want)
	}
	conn.Close()
	if late, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port)); err == nil {
		late.Close()
		t.Error("the token's port still listens")
	}
}

func TestSessionEndsWhenItsUserGoes(t *testing.T) {
	t.Parallel()
	e, _ := sessions(t)
	p := &parrot{ended: make(chan error, 1)}
	s := open(t, e, p)
	visit(t, s.Port, s.Token).Close()
	awaitEnd(t, p, context.Canceled)
}

func TestSessionEndsWithTheExecutor(t *testing.T) {
	t.Parallel()
	e, end := sessions(t)
	p := &parrot{ended: make(chan error, 1)}
	s := open(t, e, p)
	conn := visit(t, s.Port, s.Token)
	if err := execstream.NewWriter(conn).Send(execstream.Stdin, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := execstream.NewReader(conn).Next(); err != nil {
		t.Fatal(err)
	}
	end()
	awaitEnd(t, p, context.Canceled)
}

func TestSessionIsRefused(t *testing.T) {
	t.Parallel()
	e, _ := sessions(t)
	var result api.MessageResult
	ask := func(p *parrot) error {
		return e.openExec(p, "task-a", api.ExecRequest{Command: []string{"cat"}})(t.Context(), &result)
	}
	if err := ask(&parrot{forbidden: errors.New("policy /p: exec is false")}); err == nil || result.Exec != nil {
		t.Errorf("a session that is forbidden is open: %v", err)
	}
	for range maxSessions {
		if err := ask(&parrot{ended: make(chan error, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(&parrot{}); err == nil || !strings.Contains(err.Error(), "8 sessions are open") {
		t.Errorf("one too many: %v", err)
	}
	e.cfg = Config{Endpoint: "agent-1:5051"}
	if err := ask(&parrot{}); err == nil || !strings.Contains(err.Error(), "--ip") {
		t.Errorf("an agent without an address: %v", err)
	}
}

func awaitEnd(t *testing.T, p *parrot, want error) {
	t.Helper()
	select {
	case err := <-p.ended:
		if !errors.Is(err, want) {
			t.Errorf("the command ended with %v, want %v", err, want)
		}
	case <-time.After(30 * time.Second):
		t.Error("the command runs on")
	}
}
