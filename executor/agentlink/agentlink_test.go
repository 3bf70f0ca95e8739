package agentlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record frames an event as an agent does.
func record(t *testing.T, e *executor.Event) []byte {
	t.Helper()
	b, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(fmt.Appendf(nil, "%d\n", len(b)), b...)
}

// agent answers SUBSCRIBE with body and everything else with status; it checks what every call has.
func agent(t *testing.T, body []byte, status int) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var call executor.Call
		if err := call.Unmarshal(b); err != nil {
			t.Errorf("call: %v", err)
		}
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/executor" || r.Header.Get("Content-Type") != mediaType || r.Header.Get("Accept") != mediaType {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
		if r.Header.Get("Authorization") != "Bearer s3cret" || call.ExecutorID.Value != "e" || call.FrameworkID.Value != "f" {
			t.Errorf("authorization %q, executor %q, framework %q", r.Header.Get("Authorization"), call.ExecutorID.Value, call.FrameworkID.Value)
		}
		if call.Type == executor.Call_SUBSCRIBE && body != nil {
			w.Header().Set("Content-Type", mediaType)
			w.Write(body)
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, "because\n")
	})
}

func config(endpoint string) Config {
	return Config{Endpoint: endpoint, Token: "s3cret", FrameworkID: "f", ExecutorID: "e"}
}

func subscribeAndRead(t *testing.T, c *Client) {
	t.Helper()
	s, err := c.Subscribe(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := s.Next()
	if err != nil || e.Type != executor.Event_KILL || e.Kill.TaskID.Value != "a" {
		t.Errorf("event %v, error %v", e, err)
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v at the end of the stream, want EOF", err)
	}
	if err := c.Update(t.Context(), mesos.TaskStatus{TaskID: mesos.TaskID{Value: "a"}, State: mesos.TASK_RUNNING.Enum()}); err != nil {
		t.Error(err)
	}
	if err := c.Message(t.Context(), []byte("x")); err != nil {
		t.Error(err)
	}
}

func kill(t *testing.T) []byte {
	t.Helper()
	return record(t, &executor.Event{Type: executor.Event_KILL, Kill: &executor.Event_Kill{TaskID: mesos.TaskID{Value: "a"}}})
}

func TestOverTCP(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(agent(t, kill(t), http.StatusAccepted))
	defer s.Close()
	c := New(config(s.Listener.Addr().String()))
	defer c.Close()
	subscribeAndRead(t, c)
}

func TestOverTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(agent(t, kill(t), http.StatusAccepted))
	defer s.Close()
	cfg := config(s.Listener.Addr().String())
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	cfg.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	c := New(cfg)
	defer c.Close()
	subscribeAndRead(t, c)

	// An agent that cannot prove who it is gets neither token nor updates.
	cfg.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	stranger := New(cfg)
	defer stranger.Close()
	if _, err := stranger.Subscribe(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "LIBPROCESS_SSL_CA_FILE") {
		t.Errorf("error %v of an agent whose certificate is not trusted, want one with the remedy", err)
	}
}

func TestTLSWithAnAgentThatHasNone(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	cfg := config(s.Listener.Addr().String())
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	c := New(cfg)
	defer c.Close()
	if err := c.Message(t.Context(), []byte("x")); err == nil || !strings.Contains(err.Error(), "LIBPROCESS_SSL_ENABLED") {
		t.Errorf("error %v, want one that names the setting", err)
	}
}

func TestOverAUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(agent(t, kill(t), http.StatusAccepted))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	cfg := config("192.0.2.1:5051") // never dialled
	cfg.DomainSocket = path
	c := New(cfg)
	defer c.Close()
	subscribeAndRead(t, c)
}

func TestAnswersOtherThanYes(t *testing.T) {
	t.Parallel()
	for status, refused := range map[int]bool{
		http.StatusBadRequest: true, http.StatusUnauthorized: true, http.StatusNotFound: true, http.StatusTemporaryRedirect: true,
		http.StatusForbidden: true, http.StatusServiceUnavailable: false, http.StatusInternalServerError: false, http.StatusTooManyRequests: false,
	} {
		s := httptest.NewServer(agent(t, nil, status))
		c := New(config(s.Listener.Addr().String()))
		_, err := c.Subscribe(t.Context(), nil, nil)
		updateErr := c.Update(t.Context(), mesos.TaskStatus{TaskID: mesos.TaskID{Value: "a"}, State: mesos.TASK_RUNNING.Enum()})
		for _, err := range []error{err, updateErr} {
			var answer *StatusError
			if !errors.As(err, &answer) || answer.Status != status || answer.Body != "because" {
				t.Errorf("%d: error %v", status, err)
			}
			if Refused(err) != refused {
				t.Errorf("%d: refused is %v", status, !refused)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%d: the token is in the error", status)
			}
		}
		c.Close()
		s.Close()
	}
	if Refused(errors.New("connection refused")) {
		t.Error("an agent that does not answer has not refused")
	}
}

func TestDeniedIsToldApartFromNotSubscribed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		call, body string
		status     int
		denied     bool
	}{
		{"UPDATE", "401 Unauthorized.", http.StatusUnauthorized, true},
		{"UPDATE", "Executor is not subscribed", http.StatusForbidden, false},
		{"UPDATE", "Authenticated principal does not contain a 'cid' claim", http.StatusForbidden, true},
		{"SUBSCRIBE", "", http.StatusForbidden, true},
		{"SUBSCRIBE", "Executor cannot be found", http.StatusBadRequest, false},
		{"SUBSCRIBE", "Agent has not finished recovery", http.StatusServiceUnavailable, false},
	} {
		err := fmt.Errorf("wrapped: %w", &StatusError{Call: c.call, Status: c.status, Body: c.body})
		if Denied(err) != c.denied || c.denied && !Refused(err) {
			t.Errorf("%v: denied %v, refused %v", err, Denied(err), Refused(err))
		}
	}
	if Denied(errors.New("connection refused")) {
		t.Error("an agent that does not answer has denied nothing")
	}
}

func TestDenialSaysWhatToDoAndNeverTheToken(t *testing.T) {
	t.Parallel()
	// A server that repeats what it was sent.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no good: "+r.Header.Get("Authorization"), http.StatusUnauthorized)
	}))
	defer s.Close()
	for token, want := range map[Token]string{"s3cret": "no good: Bearer [token]; it does not accept the executor's token", "": "none in MESOS_EXECUTOR_AUTHENTICATION_TOKEN"} {
		cfg := config(s.Listener.Addr().String())
		cfg.Token = "another"
		c := New(cfg)
		c.SetToken(token)
		_, err := c.Subscribe(t.Context(), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error %v, want %q in it", err, want)
		}
		c.Close()
	}
}

func TestATokenDoesNotShowItself(t *testing.T) {
	t.Parallel()
	cfg := config("here:1")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("text", "token", cfg.Token, "config", cfg)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("json", "token", cfg.Token)
	fmt.Fprintf(&log, "%s %v %+v %#v %q %x %d", cfg.Token, cfg, cfg, cfg, cfg.Token, cfg.Token, cfg.Token)
	b, err := json.Marshal(map[string]any{"token": cfg.Token})
	if text := log.String() + string(b); err != nil || strings.Contains(text, "s3cret") || strings.Contains(text, fmt.Sprintf("%x", "s3cret")) || !strings.Contains(text, hidden) {
		t.Errorf("%s, error %v", text, err)
	}
	if Token("a b").Valid() || Token("a\r\nb").Valid() || Token("ä").Valid() || !Token("eyJ.a-b_c.d=").Valid() {
		t.Error("what can go into a header is not told apart")
	}
}

func TestTheTokenDoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the call was sent on") }))
	defer elsewhere.Close()
	s := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	c := New(config(s.Listener.Addr().String()))
	defer c.Close()
	if err := c.Message(t.Context(), []byte("x")); err == nil {
		t.Error("a redirect was taken for an answer")
	}
}

func TestSubscribeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", mediaType)
		w.(http.Flusher).Flush()
		close(held)
		<-r.Context().Done()
	}))
	defer s.Close()
	c := New(config(s.Listener.Addr().String()))
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := c.Subscribe(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	<-held
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := stream.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestStreamThatIsNone(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }))
	defer s.Close()
	c := New(config(s.Listener.Addr().String()))
	defer c.Close()
	if _, err := c.Subscribe(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "text/html") {
		t.Errorf("error %v", err)
	}
}
