package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// sizes are Mesos's units of bytes, largest first; each is 1024 of the next.
var sizes = []struct {
	name string
	size int64
}{
	{"TB", 1 << 40}, {"GB", 1 << 30}, {"MB", 1 << 20}, {"KB", 1 << 10}, {"B", 1},
}

// ParseBytes reads a size as Mesos writes it: a whole number and one of B, KB,
// MB, GB and TB, such as 2GB.
func ParseBytes(text string) (int64, error) {
	for _, u := range sizes {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 {
			break
		}
		if n > math.MaxInt64/u.size {
			return 0, fmt.Errorf("size %q is too large", text)
		}
		return n * u.size, nil
	}
	return 0, fmt.Errorf("size %q is not a whole number and a unit: use B, KB, MB, GB or TB, such as 2GB", text)
}

// FormatBytes writes a size as Mesos does, in the largest unit that divides it.
func FormatBytes(n int64) string {
	for _, u := range sizes {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// Bytes is a flag's value in bytes.
type Bytes int64

// String writes the size as Mesos does.
func (b *Bytes) String() string { return FormatBytes(int64(*b)) }

// Set reads the flag's text.
func (b *Bytes) Set(text string) error {
	n, err := ParseBytes(text)
	if err == nil {
		*b = Bytes(n)
	}
	return err
}

// Type names the kind of value in help texts.
func (b *Bytes) Type() string { return "size" }

// BytesVar defines a flag for a size, with the default that *p holds.
func BytesVar(set *pflag.FlagSet, p *int64, name, usage string) {
	set.Var((*Bytes)(p), name, usage)
}
