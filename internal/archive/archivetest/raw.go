package archivetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// sparse is a tar archive with one file that is a hole of so many bytes, in the old format of GNU tar.
func sparse(size int64) []byte {
	const block, checksum = 512, 148
	all := make([]byte, 3*block) // a header and the end of the archive
	h := all[:block]
	copy(h, "hole")
	copy(h[100:], "0000644\x00")
	for _, number := range []int{108, 116} { // owner and group
		copy(h[number:], "0000000\x00")
	}
	copy(h[124:], "00000000000\x00") // what is stored
	copy(h[136:], "00000000000\x00")
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	// One region of no bytes, at the end.
	copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
	copy(h[483:], fmt.Sprintf("%011o\x00", size))
	copy(h[checksum:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[checksum:], fmt.Sprintf("%06o\x00 ", sum))
	return all
}

// overlapping is a zip archive with n entries that all have the same bytes as
// their content: a bomb that is not nested.
func overlapping(t testing.TB, n int, body string) []byte {
	t.Helper()
	one := Zip(t, Entry{Name: "0", Body: body})
	// APPNOTE.TXT, 4.3.12 and 4.3.16: the entries of the directory, then its end.
	end := bytes.LastIndex(one, []byte("PK\x05\x06"))
	begin := int(binary.LittleEndian.Uint32(one[end+16:]))
	const nameAt = 46
	out := append([]byte(nil), one[:begin]...)
	for i := range n {
		entry := append([]byte(nil), one[begin:end]...)
		entry[nameAt] += byte(i)
		out = append(out, entry...)
	}
	size := len(out) - begin
	tail := append([]byte(nil), one[end:]...)
	binary.LittleEndian.PutUint16(tail[8:], uint16(n))
	binary.LittleEndian.PutUint16(tail[10:], uint16(n))
	binary.LittleEndian.PutUint32(tail[12:], uint32(size))
	return append(out, tail...)
}

// moreTars and moreZips are further parts of HostileTars and HostileZips.
func moreTars(t testing.TB) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"hole":          sparse(1 << 32),
		"long dotdot":   Tar(t, Entry{Name: strings.Repeat("x/", 60) + strings.Repeat("../", 70) + "canary", Body: "dead"}),
		"long link out": Tar(t, Entry{Name: "l", Type: link, Link: strings.Repeat("x/", 60) + strings.Repeat("../", 70) + "canary"}),
		"link to zero":  Tar(t, Entry{Name: "l", Type: link, Link: ""}),
	}
}

func moreZips(t testing.TB) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"overlapping": overlapping(t, 4, strings.Repeat("\x00", 30_000)),
	}
}
