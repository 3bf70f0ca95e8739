package processdaemon

import (
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"tandem/processdaemon/protocol"
)

//go:embed openapi.yaml
var description []byte

// serveDescription answers with the OpenAPI description of the API.
func serveDescription(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(description) // a client that has gone needs no answer
}

func (d *Daemon) serveTail(w http.ResponseWriter, r *http.Request) {
	n, ok := bytesOf(w, r)
	if !ok {
		return
	}
	text, err := d.Tail(r.PathValue("id"), min(n, maxTail))
	if err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // a client that has gone needs no answer
}

// bytesOf reads how much output is asked for.
func bytesOf(w http.ResponseWriter, r *http.Request) (n int, ok bool) {
	v := r.URL.Query().Get("bytes")
	if v == "" {
		return defaultTail, true
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		answer(w, nil, fail(protocol.CodeInvalid, "bytes=%q: want a positive number", v))
		return 0, false
	}
	return n, true
}

// serveLogs streams output.
func (d *Daemon) serveLogs(w http.ResponseWriter, r *http.Request) {
	n, ok := bytesOf(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	stream, follow := q.Get("stream"), false
	if stream == "" {
		stream = "stdout"
	}
	if v := q.Get("follow"); v != "" {
		var err error
		if follow, err = strconv.ParseBool(v); err != nil {
			answer(w, nil, fail(protocol.CodeInvalid, "follow=%q: want true or false", v))
			return
		}
	}
	lines := int64(-1)
	if v := q.Get("lines"); v != "" {
		var err error
		if lines, err = strconv.ParseInt(v, 10, 64); err != nil || lines < 0 {
			answer(w, nil, fail(protocol.CodeInvalid, "lines=%q: want a number of lines", v))
			return
		}
	}
	from, exact := int64(-1), q.Get("places") == "true"
	if v := q.Get("from"); v != "" {
		var err error
		if from, err = strconv.ParseInt(v, 10, 64); err != nil || from < 0 {
			answer(w, nil, fail(protocol.CodeInvalid, "from=%q: want a place, a number of bytes", v))
			return
		}
	}
	push, done := d.pushing(w)
	defer done()
	began, expected := false, int64(-1)
	begin := func() {
		if !began {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusOK)
			began = true
		}
	}
	start := logStart{bytes: int64(n), lines: lines, from: from}
	err := d.logs(r.Context(), r.PathValue("id"), stream, q.Get("file"), start, follow, func(at int64, b []byte) error {
		switch {
		case !began:
			w.Header().Set(protocol.PlaceHeader, strconv.FormatInt(at, 10))
		case exact && at != expected:
			return errGap
		}
		expected = at + int64(len(b))
		begin()
		return push(func() error { _, err := w.Write(b); return err })
	})
	if err != nil && !began {
		answer(w, nil, err)
		return
	}
	begin()
}

// serveEvents streams statuses, one JSON object a line.
func (d *Daemon) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	push, done := d.pushing(w)
	defer done()
	// So that the client knows that it is connected though there is no task yet.
	w.WriteHeader(http.StatusOK)
	if push(func() error { return nil }) != nil {
		return
	}
	_ = d.Events(r.Context(), r.URL.Query().Get("owner"), func(s protocol.Status) error {
		return push(func() error { return enc.Encode(s) })
	}) // its error would be that the client has gone
}

// serveFetch streams progress, because a download can take longer than anybody waits in silence.
func (d *Daemon) serveFetch(w http.ResponseWriter, r *http.Request) {
	var req protocol.FetchRequest
	if !d.decode(w, r, &req) {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	push, done := d.pushing(w)
	defer done()
	say := func(e protocol.FetchEvent) {
		_ = push(func() error { return enc.Encode(e) }) // a client that has gone ends the request's context
	}
	digests, err := d.Fetch(r.Context(), req.User, req.URIs, func(text string) { say(protocol.FetchEvent{Progress: text}) })
	if err != nil {
		say(protocol.FetchEvent{Error: err.Error()})
		return
	}
	say(protocol.FetchEvent{Done: true, Digests: digests})
}

// serveExec answers in two lines, so that a caller whose time is up knows
// whether the command took it or the daemon did.
func (d *Daemon) serveExec(w http.ResponseWriter, r *http.Request) {
	var req protocol.ExecRequest
	if !d.decode(w, r, &req) {
		return
	}
	enc := json.NewEncoder(w)
	runs := false
	res, err := d.Exec(r.Context(), r.PathValue("id"), req, func() {
		runs = true
		w.Header().Set("Content-Type", "application/x-ndjson")
		if enc.Encode(protocol.ExecEvent{}) == nil {
			_ = http.NewResponseController(w).Flush() // a client that has gone ends the request's context
		}
	})
	var e *protocol.Error
	switch {
	case err != nil && !runs:
		answer(w, nil, err)
	case errors.As(err, &e):
		_ = enc.Encode(protocol.ExecEvent{Error: e}) // a client that has gone needs no answer
	case err != nil:
		_ = enc.Encode(protocol.ExecEvent{Error: &protocol.Error{Code: protocol.CodeInternal, Message: err.Error()}})
	default:
		_ = enc.Encode(protocol.ExecEvent{Result: &res})
	}
}
