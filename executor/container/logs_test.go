package container

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// logFrame is one line as the engine stores it.
type logFrame struct {
	stream byte
	at     time.Time
	text   string
}

func (f logFrame) encode() []byte {
	body := f.at.Format("2006-01-02T15:04:05.000000000Z07:00") + " " + f.text
	b := []byte{f.stream, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// serve is the engine's side: everything from since on, cut off after some bytes.
func serve(frames []logFrame, since time.Time, cut int) io.Reader {
	var buf bytes.Buffer
	for _, f := range frames {
		if !f.at.Before(since) {
			buf.Write(f.encode())
		}
	}
	return bytes.NewReader(buf.Bytes()[:min(cut, buf.Len())])
}

// TestOutputIsWholeWhereverConnectionsBreak: lines of two streams, time stamps
// that repeat and, between the streams, go backwards; connections that break at
// any byte. Every line arrives once.
func TestOutputIsWholeWhereverConnectionsBreak(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var frames []logFrame
		var want [3]strings.Builder
		now := [3]time.Time{1: time.Unix(1700000000, 0).UTC(), 2: time.Unix(1700000000, 500).UTC()}
		for i := range rapid.IntRange(0, 30).Draw(t, "lines") {
			s := rapid.SampledFrom([]byte{streamStdout, streamStderr}).Draw(t, "stream")
			now[s] = now[s].Add(rapid.SampledFrom([]time.Duration{0, 0, 1, 300, time.Millisecond}).Draw(t, "later"))
			text := fmt.Sprintf("%d%s\n", i, strings.Repeat("x", rapid.IntRange(0, 20).Draw(t, "size")))
			frames = append(frames, logFrame{s, now[s], text})
			want[s].WriteString(text)
		}
		c := &copier{tail: &tail{}}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := c.open(dir, &Options{}); err != nil {
			t.Fatal(err)
		}
		defer c.close()
		cuts := rapid.SliceOfN(rapid.IntRange(0, 900), 0, 5).Draw(t, "cuts")
		for _, cut := range append(cuts, 1<<20) {
			c.stdout.reconnect()
			c.stderr.reconnect()
			br := bufio.NewReaderSize(serve(frames, c.since(), cut), 4<<10)
			var err error
			for err == nil {
				err = c.frame(br)
			}
			if cut == 1<<20 && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
		for s, name := range map[int]string{1: "stdout", 2: "stderr"} {
			got, err := os.ReadFile(dir + "/" + name)
			if err != nil || string(got) != want[s].String() {
				t.Fatalf("%s: got %q, want %q (%v)", name, got, want[s].String(), err)
			}
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(logFrame{1, time.Unix(1, 2).UTC(), "hello\n"}.encode())
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 2, 'n', 'o'})
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, '2', ' '})
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := &copier{tail: &tail{}, out: &logFile{f: null}, err: &logFile{f: null}}
		br := bufio.NewReaderSize(bytes.NewReader(b), 4<<10)
		for c.frame(br) == nil {
			continue
		}
	})
}

func TestTailBounds(t *testing.T) {
	t.Parallel()
	tl := &tail{}
	for i := range 10000 {
		tl.write(fmt.Appendf(nil, "line %d\n", i))
	}
	if len(tl.buf) > 2*tailSize {
		t.Errorf("keeps %d bytes", len(tl.buf))
	}
	if got := tl.last(19); got != "line 9999\n" {
		t.Errorf("%q", got)
	}
	if got := tl.last(1 << 30); len(got) > tailSize || !strings.HasSuffix(got, "line 9999\n") {
		t.Errorf("%d bytes", len(got))
	}
	if tl.last(0) != "" || tl.last(-1) != "" {
		t.Error("something for nothing")
	}
}
