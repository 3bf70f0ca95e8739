package processdaemon

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"tandem/processdaemon/protocol"
)

// readerPatience is how long a client may take to read what it is told in a stream. One
// that never reads would be told news without end, which are kept for it.
const readerPatience = time.Minute

// pushing returns what passes a part of a stream on, at once or not in time; done is to
// be called in the end.
func (d *Daemon) pushing(w http.ResponseWriter) (push func(write func() error) error, done func()) {
	c := http.NewResponseController(w)
	// What cannot have a deadline is a test's.
	deadline := func(at time.Time) { _ = c.SetWriteDeadline(at) }
	push = func(write func() error) error {
		deadline(time.Now().Add(d.patience))
		return errors.Join(write(), c.Flush())
	}
	// The connection may serve other requests.
	return push, func() { deadline(time.Time{}) }
}

// strictly answers requests that have no route with an Error, as all that fails. Its
// code is invalid, because not_found says that there is no such task. A path that is
// not clean is not redirected: what was a PUT would become a GET.
func strictly(m *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := r.URL.EscapedPath()
		if _, pattern := m.Handler(r); pattern != "" && path.Clean(p) == p {
			m.ServeHTTP(w, r)
			return
		}
		b := bare{header: http.Header{}}
		m.ServeHTTP(&b, r)
		status, why := http.StatusNotFound, "the API has no such path; GET /v1/openapi describes it"
		if allow := b.header.Get("Allow"); b.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allow)
			status, why = b.status, "this path takes "+strings.ReplaceAll(allow, ", ", " or ")
		}
		const most = 200
		answerStatus(w, status, &protocol.Error{Code: protocol.CodeInvalid, Message: fmt.Sprintf("%s %.*q: %s", r.Method, most, p, why)})
	})
}

// bare takes an answer's head alone.
type bare struct {
	header http.Header
	status int
	bytes.Buffer
}

func (b *bare) Header() http.Header    { return b.header }
func (b *bare) WriteHeader(status int) { b.status = status }
