package execstream

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// TestHangupOfOneWhoIsNotRead: a command that reads none of its input ends with its
// user all the same, however much of that is on its way.
func TestHangupOfOneWhoIsNotRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	user, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	Abrupt(user)
	began, served := make(chan struct{}), make(chan error, 1)
	go func() {
		served <- Serve(t.Context(), conn, conn, true, func(ctx context.Context, _ Terminal) (int, error) {
			close(began)
			<-ctx.Done()
			return 0, ctx.Err()
		})
	}()
	<-began
	// Until all buffers are full.
	_ = user.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	w := NewWriter(user)
	for err == nil {
		err = w.Send(Stdin, make([]byte, MaxPayload))
	}
	select {
	case err := <-served:
		t.Fatalf("it ended with its user there: %v", err)
	default:
	}
	user.Close()
	select {
	case err := <-served:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on without its user")
	}
}
