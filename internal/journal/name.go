package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	suffix = ".json"
	// maxName leaves room in NAME_MAX (255) for suffixes and temporary names.
	maxName = 200
)

func fileName(kind, id string) string { return encode(kind+"@"+id) + suffix }

// encode makes a name that is safe as one path element, readable where it
// can be, and different for different names.
func encode(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '@', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	s := b.String()
	if len(s) <= maxName {
		return s
	}
	sum := sha256.Sum256([]byte(name))
	// A percent sign followed by no two hex digits cannot come from above, so a cut name never equals a whole one.
	return s[:maxName-35] + "%+" + hex.EncodeToString(sum[:16])
}
