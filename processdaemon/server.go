package processdaemon

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"time"

	"tandem/internal/failpoint/calls"
	"tandem/internal/unixhttp"
	"tandem/processdaemon/protocol"
)

const (
	maxBody = 64 << 20
	// bodyTime is how long a body may take.
	bodyTime = time.Minute
	// longestWait bounds a long poll; clients ask again.
	longestWait = time.Minute
	defaultTail = 64 << 10
	maxTail     = 1 << 20
	// deleteTime bounds the removal of a task's files and control group; less than shutdownTime.
	deleteTime = 4 * time.Second
	// shutdownTime is what requests have that are under way when the daemon ends.
	shutdownTime = 5 * time.Second
)

// Serve answers on the listener until the context ends. It does not close the daemon.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	s := unixhttp.Server(calls.Handler("processdaemon", d.Handler()))
	s.BaseContext = func(net.Listener) context.Context { return ctx }
	// Long polls end with the context; what else runs is short.
	if err := unixhttp.ServeUntil(ctx, s, l, shutdownTime); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the HTTP API. It checks no credentials: serve it on a
// listener of internal/unixhttp.
func (d *Daemon) Handler() http.Handler {
	m := http.NewServeMux()
	for pattern, h := range d.routes() {
		m.HandleFunc(pattern, h)
	}
	return strictly(m)
}

// routes are all that the API has; openapi.yaml describes them.
func (d *Daemon) routes() map[string]http.HandlerFunc {
	// New has taken up all tasks before it returns, so whoever can ask may start.
	healthy := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }
	return map[string]http.HandlerFunc{
		"GET /healthz":    healthy,
		"GET /readyz":     healthy,
		"GET /v1/openapi": serveDescription,
		"GET /v1/info":    func(w http.ResponseWriter, _ *http.Request) { answer(w, d.Info(), nil) },
		"GET /v1/version": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, protocol.About{Version: d.opts.Version, API: protocol.Version}, nil)
		},
		"GET /v1/events":     d.serveEvents,
		"POST /v1/fetch":     d.serveFetch,
		"GET /v1/tasks":      func(w http.ResponseWriter, r *http.Request) { answer(w, d.List(r.URL.Query().Get("owner")), nil) },
		"PUT /v1/tasks/{id}": d.serveCreate,
		"GET /v1/tasks/{id}": d.serveStatus,
		"DELETE /v1/tasks/{id}": func(w http.ResponseWriter, r *http.Request) {
			// What was begun is brought to its end also when the daemon is.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), deleteTime)
			defer cancel()
			answer(w, struct{}{}, d.Delete(ctx, r.PathValue("id")))
		},
		"PUT /v1/tasks/{id}/files":    d.serveFiles,
		"POST /v1/tasks/{id}/start":   d.serveStart,
		"POST /v1/tasks/{id}/stop":    d.serveStop,
		"POST /v1/tasks/{id}/restart": d.serveRestart,
		"POST /v1/tasks/{id}/reload":  func(w http.ResponseWriter, r *http.Request) { s, err := d.Reload(r.PathValue("id")); answer(w, s, err) },
		"POST /v1/tasks/{id}/signal":  d.serveSignal,
		"POST /v1/tasks/{id}/exec":    d.serveExec,
		"POST /v1/tasks/{id}/session": d.serveSession,
		"PUT /v1/tasks/{id}/limits":   d.serveLimits,
		"POST /v1/tasks/{id}/upload":  d.serveUpload,
		"GET /v1/tasks/{id}/tail":     d.serveTail,
		"GET /v1/tasks/{id}/logs":     d.serveLogs,
		"GET /v1/tasks/{id}/logfiles": func(w http.ResponseWriter, r *http.Request) {
			f, err := d.LogFiles(r.PathValue("id"))
			answer(w, f, err)
		},
		"GET /v1/tasks/{id}/stats": func(w http.ResponseWriter, r *http.Request) { s, err := d.Stats(r.PathValue("id")); answer(w, s, err) },
	}
}

func (d *Daemon) serveCreate(w http.ResponseWriter, r *http.Request) {
	var spec protocol.Spec
	if !d.decode(w, r, &spec) {
		return
	}
	if spec.ID != r.PathValue("id") {
		answer(w, nil, fail(protocol.CodeInvalid, "the id in the path and in the body differ"))
		return
	}
	s, err := d.Create(spec)
	answer(w, s, err)
}

func (d *Daemon) serveFiles(w http.ResponseWriter, r *http.Request) {
	var files []protocol.File
	if d.decode(w, r, &files) {
		answer(w, struct{}{}, d.PutFiles(r.PathValue("id"), files))
	}
}

func (d *Daemon) serveStop(w http.ResponseWriter, r *http.Request) {
	var req protocol.StopRequest
	if d.decode(w, r, &req) {
		s, err := d.Stop(r.PathValue("id"), req.Grace)
		answer(w, s, err)
	}
}

func (d *Daemon) serveRestart(w http.ResponseWriter, r *http.Request) {
	var req protocol.RestartRequest
	if d.decode(w, r, &req) {
		s, err := d.Restart(r.PathValue("id"), req.Grace)
		answer(w, s, err)
	}
}

func (d *Daemon) serveSignal(w http.ResponseWriter, r *http.Request) {
	var req protocol.SignalRequest
	if d.decode(w, r, &req) {
		answer(w, struct{}{}, d.Signal(r.PathValue("id"), req.Signal))
	}
}

func (d *Daemon) serveStatus(w http.ResponseWriter, r *http.Request) {
	id, q := r.PathValue("id"), r.URL.Query()
	if !q.Has("after") {
		s, err := d.Status(id)
		answer(w, s, err)
		return
	}
	after, err := strconv.ParseUint(q.Get("after"), 10, 64)
	if err != nil {
		answer(w, nil, fail(protocol.CodeInvalid, "after=%q: want a version number", q.Get("after")))
		return
	}
	ctx, cancel, ok := waitContext(w, r)
	if !ok {
		return
	}
	defer cancel()
	s, err := d.Wait(ctx, id, after)
	if ctx.Err() != nil {
		// The time is over, or the daemon's is: the next one goes on from this.
		err = nil
	}
	answer(w, s, err)
}

func (d *Daemon) serveStart(w http.ResponseWriter, r *http.Request) {
	ctx, cancel, ok := waitContext(w, r)
	if !ok {
		return
	}
	defer cancel()
	s, err := d.Start(r.PathValue("id"))
	for err == nil && (s.State == starting || s.State == settling) {
		if s, err = d.Wait(ctx, s.ID, s.Version); ctx.Err() != nil {
			err = nil
			break
		}
	}
	answer(w, s, err)
}

func waitContext(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc, bool) {
	wait := time.Duration(0)
	if v := r.URL.Query().Get("wait"); v != "" {
		var err error
		if wait, err = time.ParseDuration(v); err != nil || wait < 0 {
			answer(w, nil, fail(protocol.CodeInvalid, "wait=%q: want a duration such as 30s", v))
			return nil, nil, false
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(wait, longestWait))
	return ctx, cancel, true
}

func (d *Daemon) decode(w http.ResponseWriter, r *http.Request, into any) bool {
	c := http.NewResponseController(w)
	// A body that never ends must not be waited for; what cannot have a deadline is a test's.
	_ = c.SetReadDeadline(time.Now().Add(d.bodyTime))
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, d.maxBody)).Decode(into)
	_ = c.SetReadDeadline(time.Time{}) // as above
	// The decoder's text may quote the body, which may hold secrets.
	var ute *json.UnmarshalTypeError
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return true
	case errors.As(err, &ute):
		want := ute.Type.String()
		if ute.Type == reflect.TypeFor[time.Duration]() {
			want = "a number of nanoseconds"
		}
		err = fail(protocol.CodeInvalid, "body: field %s: want %s", ute.Field, want)
	case errors.As(err, &large):
		err = fail(protocol.CodeInvalid, "the body has more than %d MiB", d.maxBody>>20)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fail(protocol.CodeInvalid, "the body did not come within %v", d.bodyTime)
	default:
		err = fail(protocol.CodeInvalid, "the body is not the JSON that is expected here")
	}
	answer(w, nil, err)
	return false
}

var statusOf = map[string]int{
	protocol.CodeNotFound: http.StatusNotFound, protocol.CodeConflict: http.StatusConflict,
	protocol.CodeInvalid: http.StatusBadRequest, protocol.CodeInternal: http.StatusInternalServerError,
	protocol.CodeUnavailable: http.StatusServiceUnavailable,
}

func answer(w http.ResponseWriter, body any, err error) {
	if err != nil {
		var e *protocol.Error
		switch {
		case errors.As(err, &e):
		case errors.Is(err, context.Canceled):
			// The client has gone, or Serve is ending: the next daemon knows.
			e = &protocol.Error{Code: protocol.CodeUnavailable, Message: "the process daemon is shutting down"}
		case errors.Is(err, errTaskDone):
			e = &protocol.Error{Code: protocol.CodeNotFound, Message: err.Error()}
		default:
			e = &protocol.Error{Code: protocol.CodeInternal, Message: err.Error()}
		}
		answerStatus(w, statusOf[e.Code], e)
		return
	}
	answerStatus(w, http.StatusOK, body)
}

func answerStatus(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has gone needs no answer
}
