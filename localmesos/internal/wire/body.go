package wire

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
)

// gzipMin is the length from which Apache Mesos compresses a body, in bytes.
const gzipMin = 1024

// Body answers with a whole body: with its length, and compressed with gzip if
// it is long enough and the client takes that. Streams and files are written
// without it and never compressed, as in Apache Mesos.
func Body(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if c := compressorOf(w); c != nil && len(body) >= gzipMin {
		if packed, err := pack(body); err == nil {
			body = packed
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

func pack(body []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

// Compressing lets what h answers by Body be compressed for clients that take gzip.
func Compressing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if acceptsGzip(r.Header) {
			w = compressor{w}
		}
		h.ServeHTTP(w, r)
	})
}

// compressor marks a ResponseWriter whose client takes gzip.
type compressor struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (c compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func compressorOf(w http.ResponseWriter) http.ResponseWriter {
	for {
		if c, ok := w.(compressor); ok {
			return c
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
}

// acceptsGzip follows RFC 2616, section 14.3, as far as Mesos does: gzip by
// name decides, then "*", and without the header nothing but the plain body is taken.
func acceptsGzip(h http.Header) bool {
	header := strings.Join(h.Values("Accept-Encoding"), ",")
	for _, coding := range []string{"gzip", "*"} {
		for part := range strings.SplitSeq(header, ",") {
			name, params, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), coding) {
				return !refused(params)
			}
		}
	}
	return false
}
