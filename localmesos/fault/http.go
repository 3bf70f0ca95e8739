package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Path is the endpoint: GET lists the faults, POST of a Fault as JSON adds one,
// DELETE ends all, those of ?kind=KIND, or the one of Path/ID.
const Path = "/faults"

// Status is the answer to GET: what is in force, and what was, oldest first.
type Status struct {
	// Name and Role tell whose faults they are.
	Name   string  `json:"name"`
	Role   Role    `json:"role"`
	Active []Fault `json:"active"`
	Past   []Fault `json:"past"`
}

// Cleared is the answer to DELETE.
type Cleared struct {
	Cleared int `json:"cleared"`
}

// failure is the answer to a request that was refused.
type failure struct {
	Error string `json:"error"`
}

const maxBody = 64 << 10

func isEndpoint(r *http.Request) bool {
	return r.URL.Path == Path || strings.HasPrefix(r.URL.Path, Path+"/")
}

// serve answers also while the owner is frozen.
func (s *Set) serve(w http.ResponseWriter, r *http.Request) {
	id := strings.Trim(strings.TrimPrefix(r.URL.Path, Path), "/")
	switch {
	case !fromHere(r):
		answer(w, http.StatusForbidden, failure{"faults are taken from this machine only"})
	case r.Header.Get("Origin") != "":
		answer(w, http.StatusForbidden, failure{"faults are not taken from web pages"})
	case r.Method == http.MethodDelete:
		s.serveDelete(w, r, id)
	case id != "":
		answer(w, http.StatusNotFound, failure{fmt.Sprintf("%s %s: there is nothing; DELETE it to end a fault", r.Method, r.URL.Path)})
	case r.Method == http.MethodGet:
		answer(w, http.StatusOK, Status{Name: s.o.Name, Role: s.o.Role, Active: s.List(), Past: s.Past()})
	case r.Method == http.MethodPost:
		s.servePost(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		answer(w, http.StatusMethodNotAllowed, failure{"use GET, POST or DELETE"})
	}
}

func (s *Set) servePost(w http.ResponseWriter, r *http.Request) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		answer(w, http.StatusUnsupportedMediaType, failure{"send application/json"})
		return
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields() // a filter that is misspelt would hit everything
	var f Fault
	if err := d.Decode(&f); err != nil {
		answer(w, http.StatusBadRequest, failure{"the fault cannot be read: " + err.Error()})
		return
	}
	f, err := s.Add(f)
	if err != nil {
		answer(w, statusOf(err), failure{err.Error()})
		return
	}
	answer(w, http.StatusOK, f)
	_ = http.NewResponseController(w).Flush() // before it may be too late
	s.Act(f)
}

func (s *Set) serveDelete(w http.ResponseWriter, r *http.Request, id string) {
	kind := Kind(r.URL.Query().Get("kind"))
	switch _, known := rules[kind]; {
	case kind != "" && !known:
		answer(w, http.StatusBadRequest, failure{fmt.Sprintf("fault kind %q is unknown; use one of %s", kind, join(Kinds()))})
	case kind != "":
		answer(w, http.StatusOK, Cleared{s.ClearKind(kind)})
	case id == "":
		answer(w, http.StatusOK, Cleared{s.ClearAll()})
	default:
		n, err := strconv.Atoi(id)
		if err != nil {
			answer(w, http.StatusBadRequest, failure{fmt.Sprintf("%q is not the number of a fault", id)})
			return
		}
		if err := s.Clear(n); err != nil {
			answer(w, statusOf(err), failure{err.Error()})
			return
		}
		answer(w, http.StatusOK, Cleared{1})
	}
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrRefused):
		return http.StatusConflict
	case errors.Is(err, ErrUnknown):
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone
}

// fromHere tells whether a request comes from this machine: from a loopback
// address, or from the very address that it goes to. A fault can end processes.
func fromHere(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return true // a unix socket has no addresses
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ip.IsLoopback() || ok && local.IP.Equal(ip)
}
