package master

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// NoLeader is the value of Flags.Leader by which a master knows of no leader.
const NoLeader = "none"

// leads tells whether this master is the leader; the only one always is,
// unless it was told of another.
func (f Flags) leads() bool { return f.Leader == "" }

func (f Flags) validateLeader() error {
	if f.leads() || f.Leader == NoLeader {
		return nil
	}
	host, port, err := net.SplitHostPort(f.Leader)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || host == "" || e != nil || n == 0 {
		return fmt.Errorf("--leader=%q is not an address: use host:port of the leading master, or %s", f.Leader, NoLeader)
	}
	return nil
}

// served by every master, whoever leads.
var servedByAll = map[string]bool{
	"/health": true, "/version": true, "/flags": true, "/metrics/snapshot": true, "/system/stats.json": true,
	"/files/browse": true, "/files/read": true, "/files/download": true, "/files/debug": true,
}

// redirected answers what only the leading master answers, if this is another
// one: frameworks and tools are sent to the leader, as by Apache Mesos's
// standby masters. The path is the request's without /master.
func (m *Master) redirected(w http.ResponseWriter, r *http.Request, path string) bool {
	switch {
	case path == "/redirect":
		m.redirect(w, "")
	case strings.HasPrefix(path, "/redirect/"):
		wire.Text(w, http.StatusNotFound, "404 Not Found.")
	case m.flags.leads() || servedByAll[path]:
		return false
	case strings.HasPrefix(path, link.Path+"/"):
		// An agent is told its master's address and does not look for others.
		wire.Text(w, http.StatusServiceUnavailable, "this master does not lead; give the agent the address of the one that does")
	default:
		m.redirect(w, r.URL.RequestURI())
	}
	return true
}

// redirect points to the leading master, or says that there is none.
func (m *Master) redirect(w http.ResponseWriter, uri string) {
	leader := m.flags.Leader
	switch leader {
	case NoLeader:
		wire.Text(w, http.StatusServiceUnavailable, "No leader elected")
		return
	case "":
		leader = net.JoinHostPort(m.flags.Hostname, strconv.Itoa(m.flags.Port))
	}
	// Without a scheme, for the client to keep its own.
	w.Header().Set("Location", "//"+leader+uri)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusTemporaryRedirect)
}
