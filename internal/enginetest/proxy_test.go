package enginetest

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/internal/testkit"
)

// TestAnEngineThatAnswersAtOnceIsHeardToTheEnd: it answers while the proxy has yet to see that the call's body is over.
func TestAnEngineThatAnswersAtOnceIsHeardToTheEnd(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(testkit.ShortDir(t), "e.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	engine := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		// As an engine does with the output of a command: the answer is as long as the connection.
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n")
		time.Sleep(time.Millisecond) // the end of the body is seen meanwhile, or not
		_, _ = io.WriteString(conn, "words")
	})}
	go func() { _ = engine.Serve(l) }()
	t.Cleanup(func() { engine.Close() })
	p := NewProxy(t, socket)
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(p.Host, "unix://"))
	}}}
	defer c.CloseIdleConnections()
	for i := range 300 {
		resp, err := c.Post("http://engine/start", "application/json", strings.NewReader(`{"Detach":false}`))
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "words" {
			t.Fatalf("call %d: %q, %v", i, b, err)
		}
	}
}
