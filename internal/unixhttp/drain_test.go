package unixhttp

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"sync"
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
