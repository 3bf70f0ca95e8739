package unixhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/internal/testkit"
)

// TestNoRequestIsLost: servers take turns on one socket while clients make a connection
// for each request. Every request has its answer.
func TestNoRequestIsLost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testkit.PublicDir(t), "s")
	l, err := Listen(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	answers := 0
	for range 4 {
		clients.Go(func() {
			h := Client(path)
			h.Transport.(*http.Transport).DisableKeepAlives = true
			for ctx.Err() == nil {
				resp, err := h.Get("http://x/")
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(b) != "whole" {
					t.Errorf("%q %v", b, err)
				}
				mu.Lock()
				answers++
				mu.Unlock()
			}
		})
	}
	const rounds = 20
	for round := range rounds {
		serving, stop := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() {
			over <- ServeUntil(serving, Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Millisecond)
				_, _ = io.WriteString(w, "whole")
			})), l, 20*time.Second)
		}()
		mu.Lock()
		enough := answers + 10
		mu.Unlock()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			mu.Lock()
			n := answers
			mu.Unlock()
			if n >= enough || t.Failed() {
				break
			}
		}
		if round == rounds-1 {
			cancel()
			clients.Wait()
			stop()
			if err := <-over; err != nil {
				t.Error(err)
			}
			break
		}
		kept, err := l.Keep()
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if l, err = Inherit(kept, path, "", true); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
}

// slowToTake holds up a connection between its taking and its being served.
type slowToTake struct {
	*Listener
	taken, release chan struct{}
}

func (l *slowToTake) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		close(l.taken)
		<-l.release
	}
	return c, err
}

// TestConnectionThatIsBeingTakenIsServed: the end comes between the taking of a
// connection and the server's knowing of it. Its request is answered all the same.
func TestConnectionThatIsBeingTakenIsServed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testkit.PublicDir(t), "s")
	inner, err := Listen(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	l := &slowToTake{inner, make(chan struct{}), make(chan struct{})}
	serving, stop := context.WithCancel(t.Context())
	defer stop()
	var answered atomic.Bool
	over := make(chan error, 1)
	go func() {
		err := ServeUntil(serving, Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(50 * time.Millisecond)
			answered.Store(true)
		})), l, 20*time.Second)
		if !answered.Load() {
			err = errors.Join(err, errors.New("it was over before the request was answered"))
		}
		over <- err
	}()
	got := make(chan error, 1)
	go func() {
		resp, err := Client(path).Get("http://x/")
		if err == nil {
			err = resp.Body.Close()
		}
		got <- err
	}()
	<-l.taken
	stop()
	time.Sleep(50 * time.Millisecond) // what would end too early has the time to
	close(l.release)
	if err := errors.Join(<-got, <-over); err != nil {
		t.Error(err)
	}
}
