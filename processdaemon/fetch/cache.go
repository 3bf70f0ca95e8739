package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tandem/internal/atomicfile"
)

// The cache holds blobs under their digest, and an index that says which blob
// a URI gave last. Both may be deleted at any time: they are fetched again.

const digestPrefix = "sha256:"

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func validDigest(d string) bool {
	h, ok := strings.CutPrefix(d, digestPrefix)
	if !ok || len(h) != 2*sha256.Size {
		return false
	}
	_, err := hex.DecodeString(h)
	return err == nil && h == strings.ToLower(h)
}

// entry is what the index knows about one URI. It holds no URI, which may be secret.
type entry struct {
	Digest       string    `json:"digest"`
	ETag         string    `json:"etag,omitempty"`
	LastModified string    `json:"lastModified,omitempty"`
	Size         int64     `json:"size,omitempty"`
	ModTime      time.Time `json:"modTime,omitzero"`
}

func (f *Fetcher) entry(key string) *entry {
	b, err := os.ReadFile(filepath.Join(f.index(), key))
	if err != nil {
		return nil
	}
	e := new(entry)
	if json.Unmarshal(b, e) != nil || !validDigest(e.Digest) {
		return nil
	}
	return e
}

func (f *Fetcher) remember(key string, e *entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return atomicfile.WriteVolatile(filepath.Join(f.index(), key), b, 0o600)
}

// touch marks a blob as used and tells whether it exists.
func (f *Fetcher) touch(digest string) bool {
	now := time.Now()
	return os.Chtimes(f.blob(digest), now, now) == nil
}

// add copies r into the cache and returns the digest. total is the expected
// size, or -1.
func (f *Fetcher) add(ctx context.Context, r io.Reader, total int64, shown string, progress func(string)) (string, int64, error) {
	if total > f.limits.MaxBytes {
		return "", 0, fmt.Errorf("it has %d bytes, more than the limit of %d", total, f.limits.MaxBytes)
	}
	tmp, err := os.CreateTemp(f.blobs(), atomicfile.TempPrefix)
	if err != nil {
		return "", 0, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	sum := sha256.New()
	m := &meter{r: io.LimitReader(r, f.limits.MaxBytes+1), ctx: ctx, total: total, shown: shown, progress: progress}
	n, err := io.Copy(io.MultiWriter(tmp, sum), m)
	if err != nil {
		return "", 0, err
	}
	if n > f.limits.MaxBytes {
		return "", 0, fmt.Errorf("it has more than the limit of %d bytes", f.limits.MaxBytes)
	}
	if total >= 0 && n != total {
		return "", 0, fmt.Errorf("it broke off after %d of %d bytes", n, total)
	}
	// The name promises the content, so the content must be on the disk first.
	if err := tmp.Sync(); err != nil {
		return "", 0, err
	}
	digest := digestPrefix + hex.EncodeToString(sum.Sum(nil))
	if err := os.Rename(tmp.Name(), f.blob(digest)); err != nil {
		return "", 0, err
	}
	return digest, n, nil
}

// meter tells how far a copy is and stops it with the context.
type meter struct {
	r        io.Reader
	ctx      context.Context //nolint:containedctx // io.Reader has no room for one
	n, total int64
	shown    string
	progress func(string)
	last     time.Time
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, context.Cause(m.ctx)
	}
	n, err := m.r.Read(p)
	m.n += int64(n)
	const every = 500 * time.Millisecond
	if now := time.Now(); m.progress != nil && now.Sub(m.last) >= every {
		m.last = now
		text := fmt.Sprintf("fetching %s: %.1f MB", m.shown, float64(m.n)/1e6)
		if m.total > 0 {
			text = fmt.Sprintf("fetching %s: %.1f of %.1f MB", m.shown, float64(m.n)/1e6, float64(m.total)/1e6)
		}
		m.progress(text)
	}
	return n, err
}

// shrink removes the blobs that were used longest ago until the cache fits,
// but none that may be in use: keep, and what was touched in the last minutes.
// One that is open meanwhile stays readable (unlink(2)).
func (f *Fetcher) shrink(keep string) {
	const young = 10 * time.Minute
	type blob struct {
		name string
		size int64
		used time.Time
	}
	entries, err := os.ReadDir(f.blobs())
	if err != nil {
		return
	}
	var all []blob
	var sum int64
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			all = append(all, blob{e.Name(), st.Size(), st.ModTime()})
			sum += st.Size()
		}
	}
	slices.SortFunc(all, func(a, b blob) int { return a.used.Compare(b.used) })
	for _, b := range all {
		if sum <= f.limits.CacheBytes {
			return
		}
		if digestPrefix+b.name == keep || time.Since(b.used) < young {
			continue
		}
		if os.Remove(filepath.Join(f.blobs(), b.name)) == nil {
			sum -= b.size
		}
	}
}
