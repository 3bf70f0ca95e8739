package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	stdhash "hash"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
)

// download brings one content into the cache, with as many requests as it takes:
// what has arrived stays, and the next request asks for the rest where the server
// can tell that it still has the same content (RFC 9110, 13.1.5 and 14).
type download struct {
	f        *Fetcher
	s        *source
	old      *entry // what the cache has of it, or nil
	progress func(string)

	tmp  *os.File
	sum  stdhash.Hash // of what tmp holds
	have int64        // bytes in tmp
	most int64        // the most it ever had
	// total is the size that the server told, -1 when it did not; end is where the
	// answer that is being read has to end.
	total, end int64
	// etag and modified tell whether the content is still the same.
	etag, modified string
	// lied says that the server answered a request for a part wrongly, so that it
	// is not asked for parts again.
	lied  bool
	sums  []checksum
	shown time.Time // when progress was told last
	try   int
	// requests bounds a server that always brings a little more and never the end.
	requests int
}

// tries is how many requests in a row may fail without bringing anything new
// that counts.
const (
	tries   = 5
	ever    = 1000
	counts  = 1 << 20
	pauseTo = 30 * time.Second
)

// retryable is a failure that another request may mend.
type retryable struct {
	error
	after time.Duration // what the server asks for
}

func (r *retryable) Unwrap() error { return r.error }

func again(format string, args ...any) error { return &retryable{error: fmt.Errorf(format, args...)} }

// errStalled ends a request, and the download when nothing at all came with it.
var errStalled = errors.New("no progress")

// run downloads, or finds that old is still what the server has.
func (d *download) run(ctx context.Context) (*entry, error) {
	tmp, err := os.CreateTemp(d.f.blobs(), atomicfile.TempPrefix)
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	d.tmp, d.sum, d.total, d.end = tmp, sha256.New(), -1, -1
	for d.try = 1; ; d.try++ {
		d.requests++
		before := d.most
		same, err := d.request(ctx)
		if same {
			return d.old, nil
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var r *retryable
		if !errors.As(err, &r) {
			return nil, err
		}
		if d.most-before >= counts {
			d.try = 1
		}
		if d.try >= tries || d.requests >= ever {
			return nil, fmt.Errorf("given up after %d tries: %w", d.requests, err)
		}
		d.tell(fmt.Sprintf("; try %d of %d follows: %v", d.try+1, tries, err), true)
		if err := d.pause(ctx, r.after); err != nil {
			return nil, err
		}
	}
	if err := failpoint.Inject("fetch/downloaded"); err != nil {
		return nil, err
	}
	digest, err := d.f.keep(tmp, d.sum, append(d.s.want, d.sums...), d.s.open())
	if err != nil {
		return nil, err
	}
	return &entry{Digest: digest, ETag: d.etag, LastModified: d.modified}, nil
}

// pause doubles from try to try, with some chance in it, lest all agents come back at once.
func (d *download) pause(ctx context.Context, asked time.Duration) error {
	wait := d.f.limits.Pause << (d.try - 1)
	wait += rand.N(wait/2 + 1)
	t := time.NewTimer(min(max(wait, asked), pauseTo))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request makes one request and adds what it brings. same says that there is
// nothing newer than old.
func (d *download) request(ctx context.Context) (same bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := d.f.limits.Stall
	stalled := time.AfterFunc(stall, func() {
		cancel(fmt.Errorf("%w for %v; the server is too slow or gone", errStalled, stall))
	})
	defer stalled.Stop()

	req, err := d.ask(ctx)
	if err != nil {
		return false, err
	}
	resp, err := d.f.client.Do(req)
	if err != nil {
		failed := withoutURL(err)
		if !errors.Is(failed, errRedirect) {
			failed = &retryable{error: failed}
		}
		return false, d.broken(ctx, failed, false)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && d.old != nil && d.have == 0 {
		return true, nil
	}
	if done, err := d.accept(resp); done || err != nil {
		return false, err
	}
	if d.total > d.f.limits.MaxBytes {
		return false, fmt.Errorf("it has %d bytes, more than the limit of %d", d.total, d.f.limits.MaxBytes)
	}
	before := d.have
	err = d.receive(resp.Body, func() { stalled.Reset(stall) })
	switch {
	case err != nil:
		return false, d.broken(ctx, err, d.have > before)
	case d.have > d.f.limits.MaxBytes:
		return false, fmt.Errorf("it has more than the limit of %d bytes", d.f.limits.MaxBytes)
	case d.total >= 0 && d.have != d.total:
		return false, again("it broke off after %s", bytesOf(d.have, d.total))
	}
	return false, nil
}

func (d *download) ask(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.s.url.String(), nil)
	if err != nil {
		return nil, errors.New("not a valid URL")
	}
	if d.s.user != "" || d.s.password != "" {
		req.SetBasicAuth(d.s.user, d.s.password)
	}
	// The archive is wanted as it is stored.
	req.Header.Set("Accept-Encoding", "identity")
	validator := d.etag
	if !strings.HasPrefix(validator, `"`) {
		// A weak one does not promise the same bytes (RFC 9110, 8.8.3).
		validator = d.modified
	}
	switch {
	case d.have > 0 && validator != "" && !d.lied:
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.have))
		req.Header.Set("If-Range", validator)
	case d.have > 0:
		if err := d.restart(); err != nil {
			return nil, err
		}
	case d.old != nil && d.old.ETag != "":
		req.Header.Set("If-None-Match", d.old.ETag)
	case d.old != nil && d.old.LastModified != "":
		req.Header.Set("If-Modified-Since", d.old.LastModified)
	}
	return req, nil
}

// restart forgets what has arrived.
func (d *download) restart() error {
	d.have, d.total, d.end, d.etag, d.modified, d.sums = 0, -1, -1, "", "", nil
	d.sum.Reset()
	if err := d.tmp.Truncate(0); err != nil {
		return err
	}
	_, err := d.tmp.Seek(0, io.SeekStart)
	return err
}

// accept looks at the head of an answer; done says that nothing is missing any more.
func (d *download) accept(resp *http.Response) (done bool, err error) {
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		if err := d.restart(); err != nil {
			return false, err
		}
		d.total, d.end = resp.ContentLength, resp.ContentLength
		d.etag, d.modified = "", strongLastModified(resp.Header)
		// A longer one is not kept, nor sent back.
		const longest = 1 << 10
		if tag := resp.Header.Get("ETag"); len(tag) <= longest {
			d.etag = tag
		}
		d.sums = headerSums(resp.Header, true)
	case code == http.StatusPartialContent:
		if err := d.part(resp); err != nil {
			// Whatever it is, it does not belong behind what has arrived.
			d.lied = true
			return false, errors.Join(&retryable{error: err}, d.restart())
		}
	case code == http.StatusRequestedRangeNotSatisfiable && d.have > 0:
		if d.total < 0 && resp.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.have) {
			return true, nil
		}
		d.lied = true
		return false, errors.Join(again("the server has no bytes from %d on any more (%s)", d.have, resp.Status), d.restart())
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return false, fmt.Errorf("the server answered %s; check user and pwd of the uri", resp.Status)
	case code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is not worth the trouble
		return false, &retryable{fmt.Errorf("the server answered %s", resp.Status), time.Duration(seconds) * time.Second}
	default:
		return false, fmt.Errorf("the server answered %s; check the uri", resp.Status)
	}
	// Servers that take a .tar.gz for a tar file in transit mean the file itself.
	switch enc := strings.ToLower(resp.Header.Get("Content-Encoding")); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		if name := strings.ToLower(d.s.base); strings.HasSuffix(name, "gz") {
			return false, nil
		}
		fallthrough
	default:
		return false, fmt.Errorf("the server sends it with Content-Encoding %.20q although it was asked not to; switch that off for this file", enc)
	}
	return false, nil
}

// part checks that an answer is the rest of what has arrived.
func (d *download) part(resp *http.Response) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("the server answered a request for the bytes from %d on wrongly, with %s", d.have, fmt.Sprintf(format, args...))
	}
	if d.have == 0 {
		return errors.New("the server sent a part (206) although the whole was asked for")
	}
	r := resp.Header.Get("Content-Range")
	var from, to int64
	var size string
	if n, err := fmt.Sscanf(r, "bytes %d-%d/%s", &from, &to, &size); n != 3 || err != nil {
		return wrong("Content-Range %.60q", r)
	}
	total, err := strconv.ParseInt(size, 10, 64)
	if err != nil && size != "*" {
		return wrong("Content-Range %.60q", r)
	}
	if size == "*" {
		total = d.total
	}
	switch etag := resp.Header.Get("ETag"); {
	case from != d.have || to < from || total >= 0 && to >= total:
		return wrong("Content-Range %.60q", r)
	case d.total >= 0 && total != d.total:
		return wrong("a size of %d bytes instead of %d", total, d.total)
	case d.etag != "" && etag != "" && etag != d.etag:
		return wrong("another ETag: the content has changed")
	case resp.ContentLength >= 0 && resp.ContentLength != to-from+1:
		return wrong("Content-Range %.60q and %d bytes", r, resp.ContentLength)
	}
	d.total, d.end = total, to+1
	return nil
}

// receive appends the body. Errors of reading it are retryable.
func (d *download) receive(body io.Reader, alive func()) error {
	most := d.f.limits.MaxBytes + 1
	if d.end >= 0 {
		most = min(most, d.end)
	}
	body = io.LimitReader(body, most-d.have)
	buf := make([]byte, 128<<10)
	// Fewer bytes in all that time are no progress: whoever sends them keeps a line busy.
	const least = 4 << 10
	var since int64
	for {
		n, readErr := body.Read(buf)
		if n > 0 {
			if _, err := d.tmp.Write(buf[:n]); err != nil {
				return err
			}
			d.sum.Write(buf[:n])
			d.have += int64(n)
			d.most = max(d.most, d.have)
			if since += int64(n); since >= least {
				since = 0
				alive()
			}
			d.tell("", false)
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return again("it broke off after %s: %w", bytesOf(d.have, d.total), readErr)
		}
	}
}

func bytesOf(n, total int64) string {
	if total >= 0 {
		return fmt.Sprintf("%d of %d bytes", n, total)
	}
	return fmt.Sprintf("%d bytes", n)
}

// broken explains a request that ended before its answer did. moved tells
// whether it has brought something: then another one may do so, too.
func (d *download) broken(ctx context.Context, err error, moved bool) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStalled) && moved:
		return &retryable{error: cause}
	case cause != nil:
		return cause
	}
	return err
}

// tell shows how far it is, not too often unless it must.
func (d *download) tell(more string, must bool) {
	const every = 500 * time.Millisecond
	if now := time.Now(); d.progress != nil && (must || now.Sub(d.shown) >= every) {
		d.shown = now
		d.progress("fetching " + d.s.shown + ": " + amount(d.have, d.total) + more)
	}
}

// amount is a share of bytes for people.
func amount(n, total int64) string {
	if total > 0 {
		return fmt.Sprintf("%.1f of %.1f MB", float64(n)/1e6, float64(total)/1e6)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// keep verifies a whole file and gives it its name in the cache; open tells that it
// is for anybody.
func (f *Fetcher) keep(tmp *os.File, sum stdhash.Hash, want []checksum, open bool) (string, error) {
	hexSum := hex.EncodeToString(sum.Sum(nil))
	if err := verify(tmp, hexSum, want); err != nil {
		return "", err
	}
	digest := digestPrefix + hexSum
	// The name promises the content. That it may not be on the disk yet is on record
	// before the name is there.
	f.mu.Lock()
	err := atomicfile.WriteVolatile(filepath.Join(f.volatile(), hexSum), []byte(f.boot), 0o600)
	if err == nil && (open || f.forAnybody(digest)) {
		err = tmp.Chmod(anybody)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), f.blob(digest))
	}
	f.mu.Unlock()
	if err != nil {
		return "", err
	}
	return digest, failpoint.Inject("fetch/kept")
}
