package fetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"tandem/internal/atomicfile"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// getFile copies a local file into the cache, unless it is unchanged since the last
// time. With whose rights it is read decides each time anew whether its content may be had.
func (f *Fetcher) getFile(ctx context.Context, s *source, u protocol.URI, as *syscall.Credential, progress func(string)) (string, error) {
	if err := enter(ctx, f.downloads, "fetch "+s.shown, progress); err != nil {
		return "", err
	}
	defer func() { <-f.downloads }()
	tmp, err := os.CreateTemp(f.blobs(), atomicfile.TempPrefix)
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	job := unpack.ReadJob{Path: s.file, As: as, MaxBytes: f.limits.MaxBytes, PeekOnly: f.touch(u.Digest)}
	old := f.entry(s.key())
	if old != nil && old.File != nil && f.touch(old.Digest) {
		job.Known = *old.File
	}
	state, copied, err := f.unpack.Read(ctx, job, tmp, func(done, total int64) {
		if progress != nil {
			progress("fetching " + s.shown + ": " + amount(done, total))
		}
	})
	switch {
	case err != nil:
		return "", err
	case job.PeekOnly:
		return u.Digest, nil
	case !copied:
		return old.Digest, nil
	}
	sum := sha256.New()
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := io.Copy(sum, &cancellable{ctx, tmp}); err != nil {
		return "", err
	}
	digest, err := f.keep(tmp, sum, s.want, false)
	if err != nil {
		return "", err
	}
	e := &entry{Digest: digest}
	// What changes once more at the same instant could not be told from this.
	const instant = 2 * time.Second
	if age := time.Since(state.ChangeTime); age > instant {
		e.File = &state
	}
	if err := f.remember(s.key(), e); err != nil {
		return "", err
	}
	f.Collect(digest)
	return digest, nil
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
			break
		}
		err = ue.Err
	}
	if strings.Contains(err.Error(), "Location header") {
		// The error of net/http has no type and quotes the header.
		return fmt.Errorf("%w to what is not a URL", errRedirect)
	}
	return err
}
