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
	"tandem/processdaemon/unpack"
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
	Digest       string `json:"digest"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// Proof is of the password with which a server gave it.
	Proof *proof `json:"proof,omitempty"`
	// File is the local file's state when it was copied.
	File *unpack.FileState `json:"file,omitempty"`
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

// anybody is the mode of content that whoever knows its sha256 may have, from
// wherever that says it comes: it was served to a request without credentials. All other
// content is for those alone who can fetch it themselves: a checksum is no
// secret. The cache's directory is the daemon's in either case.
const anybody = 0o644

// forAnybody marks a blob as used and tells whether it exists and is for anybody.
func (f *Fetcher) forAnybody(digest string) bool {
	if !f.touch(digest) {
		return false
	}
	st, err := os.Stat(f.blob(digest))
	return err == nil && st.Mode().Perm() == anybody
}
