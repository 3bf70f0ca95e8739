package fetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
)

// getFile copies a local file into the cache, unless it is unchanged since the last time.
func (f *Fetcher) getFile(ctx context.Context, s *source, progress func(string)) (string, error) {
	r, err := os.OpenFile(s.file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("there is no such file on this agent; check the uri, or use http to bring it here")
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	st, err := r.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("it is not a regular file (%v)", st.Mode().Type())
	}
	old := f.entry(s.key())
	if old != nil && old.Size == st.Size() && old.ModTime.Equal(st.ModTime()) && f.touch(old.Digest) {
		return old.Digest, nil
	}
	if st.Size() > f.limits.MaxBytes {
		return "", fmt.Errorf("it has %d bytes, more than the limit of %d", st.Size(), f.limits.MaxBytes)
	}
	digest, n, err := f.copyIn(ctx, r, st.Size(), s, progress)
	if err != nil {
		return "", err
	}
	if err := f.remember(s.key(), &entry{Digest: digest, Size: n, ModTime: st.ModTime()}); err != nil {
		return "", err
	}
	f.Collect(digest)
	return digest, nil
}

func (f *Fetcher) copyIn(ctx context.Context, r io.Reader, total int64, s *source, progress func(string)) (string, int64, error) {
	tmp, err := os.CreateTemp(f.blobs(), atomicfile.TempPrefix)
	if err != nil {
		return "", 0, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	d := &download{f: f, s: s, progress: progress, tmp: tmp, sum: sha256.New(), total: total, end: total}
	if err := d.receive(&cancellable{ctx, r}, func() {}); err != nil {
		return "", 0, err
	}
	if d.have != total {
		return "", 0, errors.New("it was written to while it was copied; put it in place by a rename")
	}
	digest, err := f.keep(tmp, d.sum, s.want)
	return digest, d.have, err
}

// cancellable ends with a context.
type cancellable struct {
	ctx context.Context //nolint:containedctx // io.Reader has no room for one
	r   io.Reader
}

func (c *cancellable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// errRedirect is wrapped by redirections that are not followed.
var errRedirect = errors.New("redirect")

func httpClient(stall time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: min(stall, 30*time.Second)}).DialContext,
			TLSHandshakeTimeout: min(stall, 30*time.Second),
			// The next fetch is for minutes later, if ever. And what a server sends on an idle
			// connection would be logged.
			DisableKeepAlives: true,
			// The archive is wanted as it is stored, not unpacked on the way.
			DisableCompression: true,
			ForceAttemptHTTP2:  true,
		},
		CheckRedirect: checkRedirect,
	}
}

// checkRedirect keeps to http and never to less protection than was asked for.
// Package net/http would pass credentials on to other ports and subdomains of a
// host, and the whole former URL as Referer.
func checkRedirect(req *http.Request, via []*http.Request) error {
	const most = 10
	switch {
	case len(via) >= most:
		return fmt.Errorf("more than %d %ws", most, errRedirect)
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return fmt.Errorf("%w to the scheme %q", errRedirect, req.URL.Scheme)
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("%w from https to http", errRedirect)
	}
	req.Header.Del("Referer")
	for _, v := range append(via, req) {
		if !strings.EqualFold(v.URL.Host, via[0].URL.Host) || v.URL.Scheme != via[0].URL.Scheme && v.URL.Scheme != "https" {
			req.Header.Del("Authorization")
		}
	}
	return nil
}

// strongLastModified returns the date of the last change if it can tell this
// content from a later one: within the same second it could not (RFC 9110, 8.8.2.2).
func strongLastModified(h http.Header) string {
	modified, err1 := http.ParseTime(h.Get("Last-Modified"))
	now, err2 := http.ParseTime(h.Get("Date"))
	if err1 != nil || err2 != nil || now.Sub(modified) < 2*time.Second {
		return ""
	}
	return h.Get("Last-Modified")
}

// withoutURL takes the URL, with its query, out of an error of net/http.
func withoutURL(err error) error {
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			return err
		}
		err = ue.Err
	}
}
