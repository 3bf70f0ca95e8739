package agent

import (
	"encoding/json"
	"net/http"
	"strings"

	"tandem/internal/version"
	"tandem/localmesos/internal/wire"
)

// handler routes requests as Apache Mesos's agent does: with "/slave(1)" before
// the path or without, with a slash at the end or without.
func (a *Agent) handler() http.Handler {
	get := map[string]http.HandlerFunc{
		"/state":              a.getState,
		"/health":             a.getHealth,
		"/version":            a.getVersion,
		"/flags":              a.getFlags,
		"/containers":         a.getContainers,
		"/monitor/statistics": a.getStatistics,
		"/metrics/snapshot":   a.getMetrics,
		"/files/browse":       a.browseFiles,
		"/files/read":         a.readFile,
		"/files/download":     a.downloadFile,
	}
	return wire.Compressing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := routeOf(r)
		switch h := get[path]; {
		case path == executorPath:
			a.executorAPI(w, r)
		case path == "/api/v1" || strings.HasPrefix(path, "/api/v1/"):
			a.operatorAPI(w, r)
		case h == nil:
			wire.Text(w, http.StatusNotFound, "404 Not Found.")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			e := wire.Errorf(http.StatusMethodNotAllowed, "405 Method Not Allowed. Expecting one of { 'GET' }, but received '%s'.", r.Method)
			e.Allow = http.MethodGet
			e.Write(w)
		default:
			h(w, r)
		}
	}))
}

// executorPath is the executor API's.
const executorPath = "/api/v1/executor"

// routeOf is a request's path without what may be there or not.
func routeOf(r *http.Request) string {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/slave(1)"); ok {
		path = rest
	}
	return strings.TrimSuffix(path, "/")
}

func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		wire.Text(w, http.StatusInternalServerError, err.Error())
		return
	}
	if f := r.URL.Query().Get("jsonp"); f != "" {
		wire.Body(w, http.StatusOK, "text/javascript", []byte(f+"("+string(b)+");"))
		return
	}
	wire.Body(w, http.StatusOK, string(wire.JSON), b)
}

func (a *Agent) getHealth(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
}

func versionJSON() map[string]any {
	// The Mesos version whose behaviour this agent shows comes first: tools look at it.
	return map[string]any{"version": mesosVersion, "git_sha": version.Commit, "build_date": version.Date,
		"build_time": 0, "build_user": "tandem " + version.Version}
}

// mesosVersion is the version of Apache Mesos that the agent behaves as.
const mesosVersion = "1.12.0"

func (a *Agent) getVersion(w http.ResponseWriter, r *http.Request) { writeJSON(w, r, versionJSON()) }
