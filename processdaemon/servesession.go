package processdaemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tandem/internal/execstream"
	"tandem/processdaemon/protocol"
)

func (d *Daemon) serveLimits(w http.ResponseWriter, r *http.Request) {
	var l protocol.Limits
	if d.decode(w, r, &l) {
		s, err := d.SetLimits(r.PathValue("id"), l)
		answer(w, s, err)
	}
}

func (d *Daemon) serveUpload(w http.ResponseWriter, r *http.Request) {
	var f protocol.File
	if d.decode(w, r, &f) {
		answer(w, struct{}{}, d.Upload(r.PathValue("id"), f))
	}
}

// serveSession hands the connection over to a session.
func (d *Daemon) serveSession(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), protocol.SessionProtocol) {
		answer(w, nil, fail(protocol.CodeInvalid, "a session needs a connection of its own: send Connection: Upgrade and Upgrade: %s", protocol.SessionProtocol))
		return
	}
	var req protocol.SessionRequest
	if !d.decode(w, r, &req) {
		return
	}
	// What is known to be wrong is told while there is still an answer to tell it in.
	id := r.PathValue("id")
	if s, err := d.Status(id); err != nil || s.State != running {
		if err == nil {
			err = fail(protocol.CodeConflict, "task %q is %s: a session can be opened in a running task only", id, s.State)
		}
		answer(w, nil, err)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		answer(w, nil, fail(protocol.CodeInternal, "hand the connection over: %v", err))
		return
	}
	defer conn.Close()
	// The server's limits of a request do not count any more.
	if conn.SetDeadline(time.Time{}) != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// The request's context ends with the server; the daemon may end before.
	defer context.AfterFunc(d.ctx, cancel)()
	// Output that nobody takes must not hold up the end.
	defer context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now().Add(time.Second)) })()
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol.SessionProtocol); err != nil {
		return
	}
	err = execstream.Serve(ctx, conn, buffered, req.Stdin, func(ctx context.Context, t execstream.Terminal) (int, error) {
		return d.Session(ctx, id, req, t)
	})
	if err != nil {
		d.log.Info("session is over", "task", id, "err", err)
	}
}
