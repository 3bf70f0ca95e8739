package processdaemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLastLines compares with the plain way, for texts with and without an end, whose
// heads were cut off or not.
func TestLastLines(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 100 {
		var b bytes.Buffer
		for range rnd.IntN(6) {
			fmt.Fprintf(&b, "%s\n", strings.Repeat("x", rnd.IntN(1+round*600)))
		}
		if rnd.IntN(2) == 0 {
			b.WriteString("no end")
		}
		text, cut := b.Bytes(), int64(rnd.IntN(2)*1000)
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(text); err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(text, []byte{'\n'})
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1]
		}
		for n := range int64(8) {
			want := cut + int64(len(text)-len(bytes.Join(lines[max(0, len(lines)-int(n)):], nil)))
			at, err := lastLines(func(from int64, buf []byte) (int, int64, error) {
				if from < 0 {
					from = max(0, int64(len(text))+from) + cut
				}
				from = max(from, cut)
				n, err := f.ReadAt(buf, from-cut)
				if errors.Is(err, io.EOF) {
					err = nil
				}
				return n, from + int64(n), err
			}, n)
			if err != nil || at != want {
				t.Fatalf("%d lines of %d bytes in %d lines, %d cut: at %d, want %d (%v)", n, len(text), len(lines), cut, at, want, err)
			}
		}
		f.Close()
	}
}

// TestLinesOfLogs: the last lines of each stream, through the API.
func TestLinesOfLogs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	s := spec(d, "a", "seq 1 9; sleep 60")
	s.LogPath = "log/*.log"
	run(t, d, s)
	write(t, filepath.Join(s.WorkPath, "log/own.log"), "one\ntwo\nthree", 0o644)
	for _, x := range []struct {
		stream string
		lines  int
		want   string
	}{{"stdout", 2, "8\n9\n"}, {"stdout", 0, ""}, {"stderr", 3, ""}, {"log", 2, "two\nthree"}, {"log/own.log", -1, "one\ntwo\nthree"}} {
		eventually(t, x.stream, func() bool {
			var out strings.Builder
			err := c.LogLines(t.Context(), "a", x.stream, x.lines, false, &out)
			return err == nil && out.String() == x.want
		})
	}
}

// TestOutputIsReadOverItsPieces: whatever is in a piece by now is found there, from
// any place on, and the last lines go on in older pieces.
func TestOutputIsReadOverItsPieces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all strings.Builder
	begin := 1000 // what was before is gone
	for i := range 4 {
		text := strings.Repeat(fmt.Sprintf("line %d\n", i), 3+i*5000)
		name := pieceName("out", int64(begin+all.Len()))
		if i == 3 {
			name = "out"
		}
		write(t, filepath.Join(dir, name), text, 0o644)
		all.WriteString(text)
	}
	write(t, filepath.Join(dir, "out.000000000000.gz"), "another's", 0o644)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	readAt := func(from int64, buf []byte) (int, int64, error) {
		return readOutput(root, "out", from, buf, func(name string) (*os.File, int64, error) { return openRegular(root, name, os.O_RDONLY) })
	}
	from := func(at int64) string {
		var out strings.Builder
		for buf := make([]byte, 999); ; {
			n, next, err := readAt(at, buf)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return out.String()
			}
			out.Write(buf[:n])
			at = next
		}
	}
	for _, at := range []int64{0, 1, 1000, 1001, 1021, 1022, 30000, int64(begin+all.Len()) - 1, int64(begin + all.Len()), 1 << 40} {
		if got, want := from(at), all.String()[min(max(0, at-1000), int64(all.Len())):]; got != want {
			t.Errorf("from %d: %d bytes, want %d", at, len(got), len(want))
		}
	}
	if got := from(-7); got != "line 3\n" {
		t.Errorf("the last 7 bytes: %q", got)
	}
	if got := from(-math.MaxInt64); got != all.String() {
		t.Errorf("all: %d bytes", len(got))
	}
	lines := strings.SplitAfter(strings.TrimSuffix(all.String(), "\n"), "\n")
	for _, n := range []int{1, 3, 14000, 15003, 15004, 25000, 30010, 30012, 40000} {
		at, err := lastLines(readAt, int64(n))
		want := strings.Join(lines[max(0, len(lines)-n):], "") + "\n"
		if got := from(at); err != nil || got != want {
			t.Errorf("the last %d lines: %d bytes, want %d (%v)", n, len(got), len(want), err)
		}
	}
}
