package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tandem/api"
	"tandem/scheduler/wire"
)

// Limits of requests.
const (
	maxBody     = 8 << 20
	callTimeout = 30 * time.Second
)

// handler serves the HTTP API. README.md lists the routes.
func (s *Scheduler) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/apply", s.handle(s.postApply))
	mux.HandleFunc("POST /v1/validate", s.handle(s.postValidate))
	mux.HandleFunc("GET /v1/objects/{kind}", s.handle(s.getObjects))
	mux.HandleFunc("GET /v1/objects/{kind}/{namespace}/{name}", s.handle(s.getObject))
	mux.HandleFunc("DELETE /v1/objects/{kind}/{namespace}/{name}", s.handle(s.deleteObject))
	mux.HandleFunc("POST /v1/objects/{kind}/{namespace}/{name}/scale", s.handle(s.postScale))
	mux.HandleFunc("POST /v1/objects/{kind}/{namespace}/{name}/restart", s.handle(s.postRestart))
	mux.HandleFunc("GET /v1/objects/{kind}/{namespace}/{name}/events", s.handle(s.getEvents))
	mux.HandleFunc("GET /v1/taskgroups", s.handle(s.getTaskgroups))
	mux.HandleFunc("POST /v1/taskgroups/{namespace}/{name}/restart", s.handle(s.postRestartGroup))
	mux.HandleFunc("POST /v1/taskgroups/{namespace}/{name}/messages", s.handleWithin(longMessageWait+callTimeout, s.postMessage))
	mux.HandleFunc("POST /v1/taskgroups/{namespace}/{name}/exec", s.postExec)
	mux.HandleFunc("GET /v1/taskgroups/{id}/tasks/{task}/logs", s.getLogs)
	mux.HandleFunc("GET /v1/taskgroups/{id}/tasks/{task}/logfiles", s.handle(s.getLogFiles))
	mux.HandleFunc("GET /v1/agents", s.handle(s.getAgents))
	mux.Handle("GET /metrics", s.metricsHandler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.getReady)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &apiError{http.StatusNotFound, wire.Problem{Code: wire.CodeNotFound, Message: "no such path: " + r.Method + " " + r.URL.Path}})
	})
	return s.protect(mux)
}

// protect keeps web pages away: a browser on this machine would carry their
// requests to an address that others cannot reach. Requests from other origins
// change nothing, and where the API listens on a loopback address only, a Host
// that is a name other than localhost may have been made to point here.
func (s *Scheduler) protect(next http.Handler) http.Handler {
	var local bool
	if a, ok := s.api.Addr().(*net.TCPAddr); ok {
		local = a.IP.IsLoopback()
	}
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &apiError{http.StatusForbidden, wire.Problem{Code: wire.CodeForbidden, Message: "requests of web pages of another origin are refused"}})
	}))
	next = origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if local && net.ParseIP(strings.Trim(host, "[]")) == nil && !strings.EqualFold(host, "localhost") {
			writeError(w, &apiError{http.StatusForbidden, wire.Problem{Code: wire.CodeForbidden, Message: fmt.Sprintf(
				"host %q is refused: the API listens on a loopback address only; use that address, or --listen on another", host)}})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ask returns what f returns, run in the loop.
func ask[T any](r *http.Request, l *loop, f func() (T, error)) (T, error) {
	var out, none T
	err := l.call(r.Context(), func() (err error) {
		out, err = f()
		return err
	})
	if err != nil {
		return none, err // f may still be writing
	}
	return out, nil
}

// handle adapts a function that returns what is to be answered.
func (s *Scheduler) handle(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return s.handleWithin(callTimeout, f)
}

func (s *Scheduler) handleWithin(limit time.Duration, f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		answer, err := f(r)
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client has gone, and nobody is left to tell
}

func writeError(w http.ResponseWriter, err error) {
	var known *apiError
	var fields api.Errors
	var big *http.MaxBytesError
	body := wire.Problem{Code: wire.CodeInternal, Message: err.Error()}
	status := http.StatusInternalServerError
	switch {
	case errors.As(err, &known):
		status, body = known.status, known.Problem
	case errors.As(err, &fields):
		status = http.StatusUnprocessableEntity
		body = wire.Problem{Code: wire.CodeInvalid, Message: fields.Error(), Errors: fields}
	case errors.As(err, &big):
		status = http.StatusRequestEntityTooLarge
		body = wire.Problem{Code: wire.CodeTooLarge, Message: fmt.Sprintf("the request has more than %d bytes; send fewer documents at a time", big.Limit)}
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
		body.Code = wire.CodeUnavailable
	}
	writeJSON(w, status, body)
}

func badRequest(format string, args ...any) error {
	return &apiError{http.StatusBadRequest, wire.Problem{Code: wire.CodeInvalid, Message: fmt.Sprintf(format, args...)}}
}

// refOf reads the object of a path.
func refOf(r *http.Request) (api.Ref, error) {
	kind, err := kindOf(r)
	return api.Ref{Kind: kind, Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}, err
}

func kindOf(r *http.Request) (api.Kind, error) {
	for _, k := range api.Kinds() {
		if strings.EqualFold(string(k), r.PathValue("kind")) {
			return k, nil
		}
	}
	return "", badRequest("unknown kind %q: known are %v", r.PathValue("kind"), api.Kinds())
}

// decodeBody reads the JSON of a request; example is what the error shows.
func decodeBody(r *http.Request, into any, example string) error {
	err := json.NewDecoder(r.Body).Decode(into)
	var big *http.MaxBytesError
	if err == nil || errors.As(err, &big) {
		return err
	}
	return badRequest("the request is no JSON of the form %s: %v", example, err)
}

// decode reads the documents of an apply or validate request.
func decode(r *http.Request) (req wire.ApplyRequest, docs []api.Document, warnings []api.FieldError, err error) {
	if err := decodeBody(r, &req, `{"documents": [...]}`); err != nil {
		return req, nil, nil, err
	}
	if len(req.Documents) == 0 {
		return req, nil, nil, badRequest("the request holds no documents")
	}
	var all bytes.Buffer
	for _, d := range req.Documents {
		all.Write(d)
		all.WriteByte('\n')
	}
	docs, warnings, err = api.Decode(&all, "request", api.Options{Strict: req.Strict, Format: api.FormatJSON, Rules: Check})
	return req, docs, warnings, err
}

func (s *Scheduler) postApply(r *http.Request) (any, error) {
	req, docs, warnings, err := decode(r)
	if err != nil {
		return nil, err
	}
	changes, err := ask(r, s.loop, func() ([]wire.Change, error) { return s.loop.apply(docs, req.DryRun) })
	return wire.ApplyResponse{Changes: changes, Warnings: warnings}, err
}

func (s *Scheduler) postValidate(r *http.Request) (any, error) {
	_, docs, warnings, err := decode(r)
	answer := wire.ApplyResponse{Warnings: warnings}
	for i := range docs {
		answer.Changes = append(answer.Changes, wire.Change{Ref: docs[i].Ref(), Action: "valid"})
	}
	return answer, err
}

func (s *Scheduler) getObjects(r *http.Request) (any, error) {
	kind, err := kindOf(r)
	if err != nil {
		return nil, err
	}
	return ask(r, s.loop, func() ([]wire.Object, error) {
		return s.loop.listObjects(kind, r.URL.Query().Get("namespace")), nil
	})
}

func (s *Scheduler) getObject(r *http.Request) (any, error) {
	ref, err := refOf(r)
	if err != nil {
		return nil, err
	}
	return ask(r, s.loop, func() (wire.Object, error) {
		o := s.loop.objects[ref]
		if o == nil {
			return wire.Object{}, notFound(ref)
		}
		return s.loop.showObject(o), nil
	})
}

func (s *Scheduler) deleteObject(r *http.Request) (any, error) {
	return s.change(r, func(ref api.Ref) error { return s.loop.remove(ref) })
}

func (s *Scheduler) postRestart(r *http.Request) (any, error) {
	return s.change(r, func(ref api.Ref) error { return s.loop.restart(ref) })
}

func (s *Scheduler) postScale(r *http.Request) (any, error) {
	var req wire.ScaleRequest
	if err := decodeBody(r, &req, `{"replicas": 3}`); err != nil {
		return nil, err
	}
	if req.Replicas < 0 || req.Replicas > api.MaxInstances {
		return nil, badRequest("replicas %d must be 0 to %d", req.Replicas, api.MaxInstances)
	}
	return s.change(r, func(ref api.Ref) error { return s.loop.scale(ref, req.Replicas) })
}

func (s *Scheduler) change(r *http.Request, f func(api.Ref) error) (any, error) {
	ref, err := refOf(r)
	if err != nil {
		return nil, err
	}
	err = s.loop.call(r.Context(), func() error { return f(ref) })
	return ref, err
}

func (s *Scheduler) postRestartGroup(r *http.Request) (any, error) {
	err := s.loop.call(r.Context(), func() error { return s.loop.restartGroup(r.PathValue("namespace"), r.PathValue("name")) })
	return struct{}{}, err
}

func (s *Scheduler) getEvents(r *http.Request) (any, error) {
	ref, err := refOf(r)
	if err != nil {
		return nil, err
	}
	return ask(r, s.loop, func() ([]wire.Event, error) {
		return append([]wire.Event{}, s.loop.events.byObject[ref]...), nil
	})
}

func (s *Scheduler) getTaskgroups(r *http.Request) (any, error) {
	return ask(r, s.loop, func() ([]wire.Taskgroup, error) {
		return s.loop.listGroups(r.URL.Query().Get("namespace")), nil
	})
}

func (s *Scheduler) getAgents(r *http.Request) (any, error) {
	master, err := ask(r, s.loop, func() (string, error) { return s.loop.master, nil })
	if err != nil {
		return nil, err
	}
	var told []slave
	if master != "" {
		if told, err = s.fetchSlaves(r.Context(), master); err != nil {
			s.log.Warn("the list of agents is what offers have shown", "error", err)
		}
	}
	return ask(r, s.loop, func() ([]wire.Agent, error) { return s.loop.listAgents(told), nil })
}

// getReady answers 200 once the scheduler is subscribed.
func (s *Scheduler) getReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	connected := false
	if err := s.loop.call(ctx, func() error { connected = s.loop.connected; return nil }); err != nil || !connected {
		http.Error(w, "not subscribed at a master", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// metricsHandler counts the taskgroups when it is asked.
func (s *Scheduler) metricsHandler() http.Handler {
	inner := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if err := s.loop.call(ctx, func() error { s.loop.count(); return nil }); err != nil {
			s.log.Warn("metrics are not fresh", "error", err)
		}
		inner.ServeHTTP(w, r)
	})
}

func intParam(r *http.Request, name string, fallback int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, badRequest("%s %q is no number", name, text)
	}
	return n, nil
}
