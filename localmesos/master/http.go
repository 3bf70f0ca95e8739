package master

import (
	"encoding/json"
	"net/http"
	"strings"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// routes are the endpoints of the master, with and without /master in front;
// a slash at the end is allowed.
func (m *Master) routes() http.Handler {
	get := map[string]http.HandlerFunc{
		"/state":             m.serveModel(m.stateModel),
		"/state-summary":     m.serveModel(m.summaryModel),
		"/roles":             m.serveModel(m.rolesModel),
		"/metrics/snapshot":  m.serveModel(m.metricsModel),
		"/system/stats.json": m.serveModel(statsModel),
		// There is none, which is what Mesos says of a cluster without it.
		"/maintenance/status": m.serveModel(func() any { return object{} }),
		"/files/browse":       serveFiles,
		"/files/read":         serveFiles,
		"/files/download":     serveFiles,
		"/files/debug":        m.serveModel(func() any { return object{} }),
		"/slaves":             m.serveSlaves,
		"/frameworks":         m.serveModel(m.frameworksModel),
		"/tasks":              m.serveTasks,
		"/flags":              m.serveModel(func() any { return map[string]any{"flags": m.flags.texts()} }),
		"/version":            m.serveModel(func() any { return versionModel() }),
		"/health":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
	}
	return wire.Compressing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(r.URL.Path, "/")
		if rest, ok := strings.CutPrefix(path, "/master"); ok && (rest == "" || rest[0] == '/') {
			path = rest
		}
		switch {
		case m.redirected(w, r, path):
		case path == link.Path+"/subscribe":
			m.serveAgentSubscribe(w, r)
		case path == link.Path+"/call":
			m.serveAgentCall(w, r)
		case path == "/api/v1/scheduler":
			m.serveScheduler(w, r)
		case path == "/api/v1" || strings.HasPrefix(path, "/api/v1/"):
			m.serveOperator(w, r)
		case path == "/teardown":
			m.serveTeardown(w, r)
		case get[path] != nil:
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				notAllowed(w, r, "GET")
				return
			}
			get[path](w, r)
		case path == "/weights":
			m.serveWeights(w, r)
		case serveRefused(w, r, path):
		default:
			wire.Text(w, http.StatusNotFound, "404 Not Found.")
		}
	}))
}

func notAllowed(w http.ResponseWriter, r *http.Request, allow string) {
	e := wire.Errorf(http.StatusMethodNotAllowed, "405 Method Not Allowed. Expecting one of { '%s' }, but received '%s'.", allow, r.Method)
	e.Allow = allow
	e.Write(w)
}

// serveModel answers with what a function, run in the loop, makes of the state.
func (m *Master) serveModel(model func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var v any
		if !m.loop.do(func() { v = model() }) {
			wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
			return
		}
		writeJSON(w, v)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		wire.Text(w, http.StatusInternalServerError, err.Error())
		return
	}
	wire.Body(w, http.StatusOK, string(wire.JSON), b)
}

// serveTeardown ends a framework for an operator.
func (m *Master) serveTeardown(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		notAllowed(w, r, "POST")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, wire.MaxBody)
	id := r.PostFormValue("frameworkId")
	if id == "" {
		wire.Text(w, http.StatusBadRequest, "Missing 'frameworkId' query parameter in the request body")
		return
	}
	var e *wire.Error
	if !m.loop.do(func() { e = m.teardown(id) }) {
		wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
		return
	}
	writeDone(w, e)
}
