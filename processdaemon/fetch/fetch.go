// Package fetch brings archives and files to an agent and puts their content
// in place, for the process daemon. It treats every server and every archive as
// hostile: sizes and counts are bounded, and what is unpacked is unpacked by a
// process of its own (package unpack).
// It must never show a password or the query of a URL in an error or a log.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"tandem/internal/atomicfile"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// Limits bound what is fetched; zero means the default.
type Limits struct {
	// MaxBytes bounds one download; 4 GiB.
	MaxBytes int64
	// MaxUnpacked bounds the content of one archive; 16 GiB.
	MaxUnpacked int64
	// MaxFiles bounds the entries of one archive; 200 000.
	MaxFiles int
	// MaxRatio bounds how many times its size an archive may unpack to; 1000.
	MaxRatio int64
	// Stall is how long a download may make no progress; one minute.
	Stall time.Duration
	// Pause is the time before the second request when the first has failed, doubled
	// each time; half a second.
	Pause time.Duration
	// CacheBytes is what the cache may hold besides what tasks hold; what was used
	// longest ago goes first. 10 GiB.
	CacheBytes int64
	// CacheAge is how long the cache keeps what no task holds; a week.
	CacheAge time.Duration
	// OutputAge is how long a directory stays that no task uses and nobody has changed; an hour.
	OutputAge time.Duration
	// Tell is how often it is told how far an archive is unpacked; three seconds.
	Tell time.Duration
}

func (l *Limits) defaults() {
	set(&l.MaxBytes, 4<<30)
	set(&l.MaxUnpacked, 16<<30)
	set(&l.MaxFiles, 200_000)
	set(&l.MaxRatio, 1000)
	set(&l.Stall, time.Minute)
	set(&l.Pause, time.Second/2)
	set(&l.CacheBytes, 10<<30)
	set(&l.CacheAge, 7*24*time.Hour)
	set(&l.OutputAge, time.Hour)
	set(&l.Tell, 3*time.Second)
}

func set[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Pull policies.
const (
	Always       = "Always"
	IfNotPresent = "IfNotPresent"
)

// Fetcher fetches through one cache. Its methods may be called at the same time.
type Fetcher struct {
	dir    string
	limits Limits
	client *http.Client
	unpack *unpack.Runner
	log    *slog.Logger

	mu      sync.Mutex
	flights map[string]chan struct{}
	outputs map[string]*outputLock
	// slots bounds how many archives are unpacked, and downloads how many are
	// downloaded at a time: an agent that starts may start a hundred tasks.
	slots, downloads chan struct{}
	// held is what tasks name, by who holds it.
	held map[string]hold
	boot string
	// unsynced are the markers that Confirm has to see to.
	unsynced map[unsynced]bool
	// plainOnly is for tests, see merge.
	plainOnly bool
}

const maxDownloads = 16

// enter waits for one of a number of slots; leave it with a receive.
func enter(ctx context.Context, slots chan struct{}, what string, progress func(string)) error {
	select {
	case slots <- struct{}{}:
		return nil
	default:
	}
	if progress != nil {
		progress(fmt.Sprintf("waiting to %s: %d others are at it", what, cap(slots)))
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// New opens the cache in dir and clears what a fetch left there, and elsewhere,
// that was killed. What runner starts unpacks; its Log is the fetcher's.
func New(dir string, limits Limits, runner *unpack.Runner) (*Fetcher, error) {
	limits.defaults()
	f := &Fetcher{
		dir: dir, limits: limits, client: httpClient(limits.Stall), unpack: runner, log: runner.Log,
		flights: map[string]chan struct{}{}, outputs: map[string]*outputLock{}, held: map[string]hold{}, unsynced: map[unsynced]bool{},
		slots: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))), downloads: make(chan struct{}, maxDownloads),
	}
	if f.log == nil {
		f.log = slog.Default()
	}
	var err error
	if f.boot, err = procid.BootID(); err != nil {
		return nil, err
	}
	for _, d := range []string{f.blobs(), f.index(), f.intents(), f.outputDirs(), f.volatile(), f.merges()} {
		if err := atomicfile.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("fetch cache: %w", err)
		}
		if err := atomicfile.RemoveTemp(d); err != nil {
			return nil, fmt.Errorf("fetch cache: %w", err)
		}
	}
	if err := f.clearVolatile(); err != nil {
		return nil, fmt.Errorf("fetch cache: %w", err)
	}
	f.finishMerges()
	f.clearUnpacking()
	return f, nil
}

func (f *Fetcher) blobs() string { return filepath.Join(f.dir, "blobs") }
func (f *Fetcher) index() string { return filepath.Join(f.dir, "index") }
func (f *Fetcher) blob(digest string) string {
	return filepath.Join(f.blobs(), digest[len(digestPrefix):])
}

// Check refuses a URI that cannot be fetched, before anything is tried.
func Check(u protocol.URI) error {
	if _, err := parse(u); err != nil {
		return err
	}
	if !filepath.IsAbs(u.OutputDir) || filepath.Clean(u.OutputDir) == "/" && u.OutputDir != "/" {
		return fmt.Errorf("outputDir %q: must be an absolute directory", u.OutputDir)
	}
	if u.Mode&^0o777 != 0 {
		return fmt.Errorf("mode %04o: want permission bits only, such as 0644", u.Mode)
	}
	switch u.PullPolicy {
	case "", Always, IfNotPresent:
	default:
		return fmt.Errorf("pullPolicy %q: want %s or %s", u.PullPolicy, Always, IfNotPresent)
	}
	return nil
}

// source is a parsed URI.
type source struct {
	url *url.URL // nil for a local file
	// file is the path of a local file.
	file string
	// user and password are sent to the server only.
	user, password string
	// userInfo says that the address itself named a user.
	userInfo bool
	// shown is how the URI may appear in messages.
	shown string
	// base is the last element of the path.
	base string
	// want are the checksums that the URI gives.
	want []checksum
}

func parse(u protocol.URI) (*source, error) {
	if strings.HasPrefix(u.Value, "/") {
		return &source{file: filepath.Clean(u.Value), shown: u.Value, base: path.Base(u.Value)}, nil
	}
	p, err := url.Parse(u.Value)
	if err != nil {
		// The error would quote the whole URI, with what may be secret in it.
		return nil, errors.New("uri: not a valid URL; want file:///path, http://host/path or https://host/path")
	}
	s := &source{url: p, user: u.User, password: u.Password, base: path.Base(p.Path)}
	s.shown = p.Scheme + "://" + p.Host + p.EscapedPath()
	if s.want, err = fragmentSum(p); err != nil {
		return nil, fmt.Errorf("uri %q: %w", s.shown, err)
	}
	switch p.Scheme {
	case "file":
		if p.Host != "" && p.Host != "localhost" || !filepath.IsAbs(p.Path) {
			return nil, fmt.Errorf("uri %q: want file:///absolute/path", s.shown)
		}
		return &source{file: filepath.Clean(p.Path), shown: s.shown, base: path.Base(p.Path), want: s.want}, nil
	case "http", "https":
		if p.Host == "" || p.Opaque != "" {
			return nil, fmt.Errorf("uri %q: no host", s.shown)
		}
	case "":
		return nil, fmt.Errorf("uri %q: no scheme; want file://, http:// or https://", u.Value)
	default:
		return nil, fmt.Errorf("uri scheme %q is not supported; want file, http or https", p.Scheme)
	}
	const longest = 255 // NAME_MAX
	if s.base == "/" || s.base == "." || s.base == ".." || strings.Contains(s.base, "\x00") || len(s.base) > longest {
		return nil, fmt.Errorf("uri %.300q: no file name", s.shown)
	}
	s.userInfo = p.User != nil
	if p.User != nil && s.user == "" {
		s.user = p.User.Username()
		s.password, _ = p.User.Password()
	}
	// A copy without user information, so that it cannot end up in a message.
	clean := *p
	clean.User, clean.Fragment, clean.RawFragment = nil, "", ""
	s.url = &clean
	return s, nil
}

// key identifies what a source names, including as whom and with which checksum.
func (s *source) key() string {
	if len(s.want) > 0 {
		return hash(s.place() + "\x00" + s.want[0].String())
	}
	return s.place()
}

// place is key without the checksum.
func (s *source) place() string {
	if s.url == nil {
		return hash("file\x00" + s.file)
	}
	return hash(s.url.String() + "\x00" + s.user)
}

// open tells whether nothing is asked of who fetches it.
func (s *source) open() bool {
	return s.url != nil && s.user == "" && s.password == "" && s.url.RawQuery == ""
}

// Get brings the content into the cache, if it is not there or the policy
// says to look again, and returns its digest. as is for whom: a local file is read with the
// rights of that user; nil is the daemon itself. Callers who want the same share one
// download. Content for anybody whose sha256 is known beforehand is taken from wherever it came.
func (f *Fetcher) Get(ctx context.Context, as *syscall.Credential, u protocol.URI, progress func(string)) (string, error) {
	s, err := parse(u)
	if err != nil {
		return "", err
	}
	if s.url != nil && f.touch(u.Digest) {
		return u.Digest, nil
	}
	flightKey := s.key()
	known := ""
	if s.url != nil && len(s.want) > 0 && s.want[0].digest() != "" {
		known = s.want[0].digest()
		flightKey = known
	}
	for waited := false; ; waited = true {
		if known != "" && f.forAnybody(known) {
			return known, nil
		}
		f.mu.Lock()
		flight, busy := f.flights[flightKey]
		if !busy {
			flight = make(chan struct{})
			f.flights[flightKey] = flight
		}
		f.mu.Unlock()
		if busy {
			if progress != nil {
				progress("waiting for another task that fetches " + s.shown)
			}
			select {
			case <-flight:
				continue
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		// Who waited for somebody else's download takes what that one brought,
		// whatever the policy: it is no older than the request.
		var digest string
		if s.url == nil {
			digest, err = f.getFile(ctx, s, u, as, progress)
		} else {
			digest, err = f.get(ctx, s, u.PullPolicy == Always && !waited, progress)
		}
		f.mu.Lock()
		delete(f.flights, flightKey)
		f.mu.Unlock()
		close(flight)
		if err != nil {
			return "", fmt.Errorf("fetch %s: %w", s.shown, err)
		}
		return digest, nil
	}
}

func (f *Fetcher) get(ctx context.Context, s *source, again bool, progress func(string)) (string, error) {
	old := f.entry(s.key())
	if old != nil && !f.touch(old.Digest) {
		old = nil
	}
	// Of another password than last time the server knows whether it will do, too.
	enough := !again || len(s.want) > 0 && old != nil && s.want[0].digest() == old.Digest
	if old != nil && enough && old.Proof.holds(s.password) {
		return old.Digest, nil
	}
	if err := enter(ctx, f.downloads, "fetch "+s.shown, progress); err != nil {
		return "", err
	}
	defer func() { <-f.downloads }()
	d := &download{f: f, s: s, old: old, progress: progress}
	e, err := d.run(ctx)
	if err != nil {
		return "", err
	}
	if e.Proof == nil || !e.Proof.holds(s.password) {
		proven := *e
		proven.Proof = newProof(s.password)
		e = &proven
	}
	if err := f.remember(s.key(), e); err != nil {
		return "", err
	}
	f.Collect(e.Digest)
	return e.Digest, nil
}
