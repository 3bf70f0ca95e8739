package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
	digest, n, err := f.add(ctx, r, -1, s.shown, progress)
	if err != nil {
		return "", err
	}
	if err := f.remember(s.key(), &entry{Digest: digest, Size: n, ModTime: st.ModTime()}); err != nil {
		return "", err
	}
	f.shrink(digest)
	return digest, nil
}

func httpClient(stall time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: min(stall, 30*time.Second)}).DialContext,
			TLSHandshakeTimeout:   min(stall, 30*time.Second),
			ResponseHeaderTimeout: stall,
			IdleConnTimeout:       30 * time.Second,
			// The archive is wanted as it is stored, not unpacked on the way.
			DisableCompression: true,
			ForceAttemptHTTP2:  true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			const most = 10
			switch {
			case len(via) >= most:
				return fmt.Errorf("more than %d redirects", most)
			case req.URL.Scheme != "http" && req.URL.Scheme != "https":
				return fmt.Errorf("redirect to the scheme %q", req.URL.Scheme)
			case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
				return errors.New("redirect from https to http")
			}
			return nil
		},
	}
}

var errStalled = errors.New("no progress")

// getHTTP downloads, or finds that old is still what the server has.
func (f *Fetcher) getHTTP(ctx context.Context, s *source, old *entry, progress func(string)) (*entry, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(f.limits.Stall, func() {
		cancel(fmt.Errorf("%w for %v; the server is too slow or gone", errStalled, f.limits.Stall))
	})
	defer stalled.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return nil, errors.New("not a valid URL")
	}
	if s.user != "" || s.password != "" {
		req.SetBasicAuth(s.user, s.password)
	}
	if old != nil && old.ETag != "" {
		req.Header.Set("If-None-Match", old.ETag)
	} else if old != nil && old.LastModified != "" {
		req.Header.Set("If-Modified-Since", old.LastModified)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, cleanError(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && old != nil:
		return old, nil
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("the server answered %s; check user and pwd of the uri", resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the server answered %s; check the uri", resp.Status)
	}
	body := &watched{r: resp.Body, alive: func() { stalled.Reset(f.limits.Stall) }}
	digest, _, err := f.add(ctx, body, resp.ContentLength, s.shown, progress)
	if err != nil {
		return nil, cleanError(ctx, err)
	}
	return &entry{Digest: digest, ETag: resp.Header.Get("ETag"), LastModified: strongLastModified(resp.Header)}, nil
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

// watched reports each read that brought something.
type watched struct {
	r     io.Reader
	alive func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.alive()
	}
	return n, err
}

// cleanError takes the URL, with its query, out of an error of net/http, and
// puts the reason of a cancellation in.
func cleanError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			return err
		}
		err = ue.Err
	}
}
