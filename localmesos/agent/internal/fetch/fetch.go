// Package fetch brings the URIs of a CommandInfo into a sandbox: it copies or
// downloads, extracts archives and marks programs executable, as Apache Mesos's
// fetcher does.
//
// It is for the embedded agent. URIs and archives are hostile: nothing is ever
// written, linked or renamed outside of the sandbox, and nothing is read or
// written with more rights than the task's user has.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"tandem/localmesos/agent/internal/container"
)

// URI is one thing to fetch.
type URI struct {
	Value      string
	Executable bool
	// Extract unpacks an archive, known by its name; the archive stays.
	Extract bool
	// Cache brings it by way of the cache, if there is one and it has room.
	Cache bool
	// OutputFile is a path in the sandbox; empty is the last part of Value.
	OutputFile string
}

// Job is all that one executor needs.
type Job struct {
	// Dir is the sandbox. It must exist and belong to User.
	Dir  string
	URIs []URI
	// User is nil for the agent's own.
	User *container.User
	// StallTimeout is how long a download may make no progress.
	StallTimeout time.Duration
	// Cache is shared by all fetchers; may be nil.
	Cache *Cache
	// Log gets a line for each URI: the sandbox's stderr.
	Log io.Writer
}

// Run fetches all URIs, one after another. The first failure ends it; what was
// fetched before stays.
func Run(ctx context.Context, j Job) error {
	if len(j.URIs) == 0 {
		return nil
	}
	return asUser(j.User, func() error {
		root, err := os.OpenRoot(j.Dir)
		if err != nil {
			return fmt.Errorf("opening the sandbox: %w", err)
		}
		defer root.Close()
		for _, u := range j.URIs {
			fmt.Fprintf(j.Log, "Fetching '%s'\n", redact(u.Value))
			if err := j.one(ctx, root, u); err != nil {
				err = fmt.Errorf("fetching '%s': %w", redact(u.Value), err)
				fmt.Fprintf(j.Log, "Failed to fetch: %v\n", err)
				return err
			}
		}
		return nil
	})
}

// redact hides the password of a URL, which people put there all the same.
func redact(uri string) string {
	if u, err := url.Parse(uri); err == nil && u.User != nil {
		return u.Redacted()
	}
	return uri
}

func (j *Job) one(ctx context.Context, root *os.Root, u URI) error {
	name, err := target(u)
	if err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the directory of output_file %q: %w", u.OutputFile, err)
		}
	}
	src, err := j.source(ctx, u)
	if err != nil {
		return err
	}
	defer src.Close()
	mode, unpack := src.mode, extractor(name)
	if u.Executable {
		mode = 0o755
	}
	if u.Executable || !u.Extract {
		unpack = nil
	}
	if unpack != nil && src.cached != nil {
		// An archive in the cache is not copied, only what is in it.
		if err := unpack(ctx, root, src.cached); err != nil {
			return fmt.Errorf("extracting: %w", err)
		}
		return nil
	}
	if err := writeFile(root, name, src, mode); err != nil || unpack == nil {
		return err
	}
	return extract(ctx, root, name, unpack)
}

// source is what a URI brings.
type source struct {
	io.ReadCloser
	mode fs.FileMode // that of a local file, 0644 otherwise
	size int64       // -1 if it is not known
	// cached is the file in the cache that this reads, nil if it is not there.
	cached *os.File
}

func (j *Job) source(ctx context.Context, u URI) (*source, error) {
	if !u.Cache || j.Cache == nil {
		return j.open(ctx, u.Value)
	}
	who := ""
	if j.User.Switches() {
		who = j.User.Name
	}
	return j.Cache.get(ctx, cacheKey{who, u.Value}, func() (*source, error) { return j.open(ctx, u.Value) })
}

// target is the path in the sandbox that a URI is fetched to.
func target(u URI) (string, error) {
	if u.OutputFile != "" {
		if !filepath.IsLocal(u.OutputFile) || path.Clean(u.OutputFile) == "." || strings.HasSuffix(u.OutputFile, "/") {
			return "", fmt.Errorf("output_file %q is not a path inside of the sandbox", u.OutputFile)
		}
		return path.Clean(u.OutputFile), nil
	}
	// As in Apache Mesos the query is part of the name: who has one gives output_file.
	name := u.Value[strings.LastIndexByte(u.Value, '/')+1:]
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, 0) {
		return "", errors.New("the URI has no file name at its end; give output_file")
	}
	return name, nil
}

// open opens a URI.
func (j *Job) open(ctx context.Context, uri string) (*source, error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	switch {
	case !ok && filepath.IsAbs(uri):
		return openLocal(uri)
	case !ok:
		return nil, errors.New("a relative path; give an absolute one, file://, http:// or https://")
	case scheme == "file":
		p := strings.TrimPrefix(rest, "localhost")
		if !filepath.IsAbs(p) {
			return nil, errors.New("file:// must be followed by an absolute path")
		}
		return openLocal(p)
	case scheme == "http" || scheme == "https":
		return download(ctx, uri, j.StallTimeout)
	}
	return nil, fmt.Errorf("scheme %q is not supported; give an absolute path, file://, http:// or https://", scheme)
}

func openLocal(p string) (*source, error) {
	f, err := os.OpenFile(p, os.O_RDONLY|noBlock, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", p)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &source{ReadCloser: f, mode: st.Mode().Perm(), size: st.Size()}, nil
}

func download(ctx context.Context, uri string, stall time.Duration) (*source, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(stall, func() { cancel(fmt.Errorf("no progress for %s", stall)) })
	fail := func(err error) (*source, error) {
		timer.Stop()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, http.NoBody)
	if err != nil {
		return fail(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return fail(fmt.Errorf("the server answered %s", resp.Status))
	}
	body := &stallReader{ctx: ctx, body: resp.Body, timer: timer, stall: stall, cancel: func() { cancel(nil) }}
	return &source{ReadCloser: body, mode: 0o644, size: resp.ContentLength}, nil
}

// client is like the default one, but unpacks nothing by itself: an archive
// must arrive as it is.
var client = func() *http.Client {
	t := http.DefaultTransport
	if d, ok := t.(*http.Transport); ok {
		c := d.Clone()
		c.DisableCompression = true
		c.DisableKeepAlives = true
		t = c
	}
	return &http.Client{Transport: t}
}()

// stallReader ends a download that makes no progress.
type stallReader struct {
	ctx    context.Context //nolint:containedctx // it belongs to the request that this reads
	body   io.ReadCloser
	timer  *time.Timer
	stall  time.Duration
	cancel func()
}

func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.timer.Reset(s.stall)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (s *stallReader) Close() error {
	s.timer.Stop()
	s.cancel()
	return s.body.Close()
}

// writeFile replaces a file in the sandbox. A link in its place is removed,
// not followed.
func writeFile(root *os.Root, name string, src io.Reader, mode fs.FileMode) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, src)
	// The mode given at the making is cut by the umask.
	return errors.Join(err, f.Chmod(mode.Perm()), f.Close())
}
