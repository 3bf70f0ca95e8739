package wire

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Error is an answer other than 200 or 202: a status and a plain text.
type Error struct {
	Status int
	Text   string
	// Allow is the header of a 405.
	Allow string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Errorf makes an Error.
func Errorf(status int, format string, args ...any) *Error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// Write sends the error as Mesos does.
func (e *Error) Write(w http.ResponseWriter) {
	if e.Allow != "" {
		w.Header().Set("Allow", e.Allow)
	}
	Text(w, e.Status, e.Text)
}

// Text answers with a plain text.
func Text(w http.ResponseWriter, status int, text string) {
	Body(w, status, "text/plain; charset=utf-8", []byte(text))
}

// Accepted answers 202 without a body.
func Accepted(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusAccepted)
}

// Method checks that the request is a POST.
func Method(r *http.Request) *Error {
	if r.Method == http.MethodPost {
		return nil
	}
	e := Errorf(http.StatusMethodNotAllowed, "405 Method Not Allowed. Expecting one of { 'POST' }, but received '%s'.", r.Method)
	e.Allow = http.MethodPost
	return e
}

// RequestType is the media type of a request's body; it must be one of the two exactly.
func RequestType(h http.Header) (MediaType, *Error) {
	values := h.Values("Content-Type")
	if len(values) == 0 {
		return "", Errorf(http.StatusBadRequest, "Expecting 'Content-Type' to be present")
	}
	switch mt := MediaType(values[0]); mt {
	case JSON, Protobuf:
		return mt, nil
	}
	return "", Errorf(http.StatusUnsupportedMediaType, "Expecting 'Content-Type' of %s or %s", JSON, Protobuf)
}

// ResponseType is the media type that the client wants; JSON when it takes both.
func ResponseType(h http.Header) (MediaType, *Error) {
	values := h.Values("Accept")
	for _, mt := range []MediaType{JSON, Protobuf} {
		if len(values) == 0 || accepts(strings.Join(values, ","), mt) {
			return mt, nil
		}
	}
	return "", Errorf(http.StatusNotAcceptable, "Expecting 'Accept' to allow '%s' or '%s'", Protobuf, JSON)
}

// accepts follows RFC 2616, section 14.1, as far as Mesos does: q=0 refuses,
// and the most specific range decides.
func accepts(header string, mt MediaType) bool {
	major, _, _ := strings.Cut(string(mt), "/")
	best, allowed := 0, false
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		rank := 0
		switch strings.ToLower(strings.TrimSpace(name)) {
		case string(mt):
			rank = 3
		case major + "/*":
			rank = 2
		case "*/*":
			rank = 1
		}
		if rank > best {
			best, allowed = rank, !refused(params)
		}
	}
	return allowed
}

func refused(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		if key, value, ok := strings.Cut(strings.TrimSpace(p), "="); ok && key == "q" {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err != nil || !(q > 0)
		}
	}
	return false
}
