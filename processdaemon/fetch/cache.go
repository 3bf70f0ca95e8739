package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
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
	if !validDigest(digest) {
		return false
	}
	now := time.Now()
	return os.Chtimes(f.blob(digest), now, now) == nil
}
