package master

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/wire"
)

// refusedEndpoints are those of Mesos that change what this master does not
// have: the methods that they take there, and the reason.
var refusedEndpoints = map[string]struct {
	methods []string
	why     string
}{
	"/reserve":              {[]string{http.MethodPost}, noReservations},
	"/unreserve":            {[]string{http.MethodPost}, noReservations},
	"/create-volumes":       {[]string{http.MethodPost}, noReservations},
	"/destroy-volumes":      {[]string{http.MethodPost}, noReservations},
	"/machine/down":         {[]string{http.MethodPost}, noMaintenance},
	"/machine/up":           {[]string{http.MethodPost}, noMaintenance},
	"/maintenance/schedule": {[]string{http.MethodGet, http.MethodPost}, noMaintenance},
	"/quota":                {[]string{http.MethodGet, http.MethodPost, http.MethodDelete}, noQuotas},
}

// serveRefused answers what the master does not have with a clear 501. Reading
// is allowed: there is nothing, which is what Mesos says of a cluster without them.
func serveRefused(w http.ResponseWriter, r *http.Request, path string) bool {
	x, ok := refusedEndpoints[path]
	switch {
	case !ok:
		return false
	case !slices.Contains(x.methods, r.Method):
		notAllowed(w, r, strings.Join(x.methods, "', '"))
	case r.Method == http.MethodGet:
		writeJSON(w, object{})
	default:
		notImplemented(w, x.why)
	}
	return true
}

// serveFiles answers /files/browse, read and download. Apache Mesos attaches its
// log there, and that only with --log_dir; so there is nothing to be found.
func serveFiles(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("path") == "" {
		wire.Text(w, http.StatusBadRequest, "Expecting 'path=value' in query.\n")
		return
	}
	wire.Text(w, http.StatusNotFound, "")
}

// serveWeights is /weights: GET reads them, PUT changes some.
func (m *Master) serveWeights(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		m.serveModel(func() any { return rawList(m.weightInfos()) })(w, r)
	case http.MethodPut:
		m.serveUpdateWeights(w, r)
	default:
		notAllowed(w, r, "GET', 'PUT")
	}
}

func (m *Master) serveUpdateWeights(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxBody))
	var items []json.RawMessage
	if err == nil {
		err = json.Unmarshal(body, &items)
	}
	infos := make([]mesos.WeightInfo, len(items))
	for i, item := range items {
		if err == nil {
			_, err = wire.UnmarshalJSON(item, &infos[i])
		}
	}
	if err != nil {
		wire.Text(w, http.StatusBadRequest, "Failed to parse update weights request JSON: "+err.Error())
		return
	}
	var e *wire.Error
	if !m.loop.do(func() { e = m.updateWeights(infos) }) {
		wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
		return
	}
	writeDone(w, e)
}
