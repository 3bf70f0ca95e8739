package wire

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gogo/protobuf/proto"
)

// MaxBody is the largest request body that is read, in bytes, before and after
// decompression. Apache Mesos has no such limit but memory.
const MaxBody = 64 << 20

// bodyTimeout is how long a client may take to send its request's body.
const bodyTimeout = time.Minute

// ReadCall reads a POST's body into m, after the checks of method, type and
// form in the order in which Mesos makes them.
func ReadCall(w http.ResponseWriter, r *http.Request, m proto.Message) (Present, *Error) {
	if e := Method(r); e != nil {
		return nil, e
	}
	mt, e := RequestType(r.Header)
	if e != nil {
		return nil, e
	}
	body, e := readBody(w, r, MaxBody)
	if e != nil {
		return nil, e
	}
	present, err := Unmarshal(mt, body, m)
	if err != nil {
		return nil, Errorf(http.StatusBadRequest, "%s", err.Error())
	}
	return present, nil
}

// readBody reads a body of at most so many bytes, which may be compressed with gzip.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *Error) {
	control := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines.
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	var in io.Reader = http.MaxBytesReader(w, r.Body, most)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, bodyError(err)
		}
		in = &bounded{z, most}
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, bodyError(err)
	}
	return body, nil
}

func bodyError(err error) *Error {
	var large *http.MaxBytesError
	if errors.As(err, &large) || errors.Is(err, errTooLarge) {
		return Errorf(http.StatusRequestEntityTooLarge, "413 Request Entity Too Large.")
	}
	return Errorf(http.StatusBadRequest, "Failed to read the body: %v", err)
}

var errTooLarge = fmt.Errorf("the body is longer than %d bytes", MaxBody)

// bounded fails when there is more to read than left; io.LimitReader would just end.
type bounded struct {
	r    io.Reader
	left int64
}

// Read reads from the underlying reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}
