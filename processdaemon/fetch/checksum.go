package fetch

import (
	"crypto/md5" //nolint:gosec // for whoever publishes nothing better; it finds broken transfers
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// checksum is one that content must have.
type checksum struct {
	algorithm string // sha256 or md5
	sum       string // lower case hex
	from      string // who says so, for people
}

// lengths are those of the sums in hex.
var lengths = map[string]int{"sha256": 2 * sha256.Size, "md5": 2 * md5.Size}

func (c checksum) String() string { return c.algorithm + ":" + c.sum }

// digest is the name of the content in the cache, if the checksum tells it.
func (c checksum) digest() string {
	if c.algorithm != "sha256" {
		return ""
	}
	return digestPrefix + c.sum
}

func newChecksum(algorithm, sum, from string) (checksum, bool) {
	sum = strings.ToLower(sum)
	_, err := hex.DecodeString(sum)
	if err != nil || lengths[algorithm] == 0 || len(sum) != lengths[algorithm] {
		return checksum{}, false
	}
	return checksum{algorithm, sum, from}, true
}

// fragmentSum is the checksum in the fragment of a URI: #sha256=hex or #md5=hex.
// Any other fragment is refused: a checksum with a slip in its name would
// otherwise check nothing.
func fragmentSum(u *url.URL) ([]checksum, error) {
	if u.Fragment == "" {
		return nil, nil
	}
	algorithm, sum, _ := strings.Cut(u.Fragment, "=")
	c, ok := newChecksum(strings.ToLower(algorithm), sum, "the uri")
	if !ok {
		return nil, errors.New("the part after # must be sha256= and 64, or md5= and 32 hexadecimal digits")
	}
	return []checksum{c}, nil
}

// headerSums are the checksums in an answer that hold for the whole content:
// Repr-Digest (RFC 9530), Digest (RFC 3230), Content-MD5 (RFC 1864; of a whole answer
// only), X-Checksum-Sha256 and X-Checksum-Md5 (artifact servers). What cannot be
// understood is ignored.
func headerSums(h http.Header, whole bool) []checksum {
	var out []checksum
	add := func(name, algorithm, sum string) {
		if c, ok := newChecksum(algorithm, sum, "the server's header "+name); ok {
			out = append(out, c)
		}
	}
	plain := func(name, algorithm, b64 string) {
		if b, err := base64.StdEncoding.DecodeString(strings.Trim(b64, ":")); err == nil {
			add(name, algorithm, hex.EncodeToString(b))
		}
	}
	for _, name := range []string{"Repr-Digest", "Digest"} {
		for _, field := range strings.Split(strings.Join(h.Values(name), ","), ",") {
			algorithm, sum, _ := strings.Cut(strings.TrimSpace(field), "=")
			switch strings.ToLower(algorithm) {
			case "sha-256":
				plain(name, "sha256", sum)
			case "md5":
				plain(name, "md5", sum)
			}
		}
	}
	if whole {
		plain("Content-MD5", "md5", h.Get("Content-MD5"))
	}
	add("X-Checksum-Sha256", "sha256", strings.TrimSpace(h.Get("X-Checksum-Sha256")))
	add("X-Checksum-Md5", "md5", strings.TrimSpace(h.Get("X-Checksum-Md5")))
	return out
}

// verify compares content with its checksums; sum is its sha256 in hex.
func verify(f *os.File, sum string, want []checksum) error {
	for _, c := range want {
		have := sum
		if c.algorithm == "md5" {
			// Rarely wanted, so not computed on the way.
			h := md5.New() //nolint:gosec // see the import
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
			if _, err := io.Copy(h, f); err != nil {
				return err
			}
			have = hex.EncodeToString(h.Sum(nil))
		}
		if have != c.sum {
			return fmt.Errorf("%w: it has the %s %s, but %s says %s; the content was changed, or the checksum is of something else", errChecksum, c.algorithm, have, c.from, c.sum)
		}
	}
	return nil
}

var errChecksum = errors.New("wrong checksum")
