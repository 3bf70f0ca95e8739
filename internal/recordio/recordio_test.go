package recordio

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const most = 4 << 20

func TestReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3<<20)
	for _, c := range []struct {
		in   string
		want []string
		err  error
	}{
		{"", nil, io.EOF},
		{"5\nhello0\n1\na", []string{"hello", "", "a"}, io.EOF},
		{"3\nabc0\n" + string(Append(nil, []byte(long))) + "2\nde", []string{"abc", "", long, "de"}, io.EOF},
		{"4194304\n" + long, nil, io.ErrUnexpectedEOF},
		{"5\nhel", nil, io.ErrUnexpectedEOF},
		{"5\n", nil, io.ErrUnexpectedEOF},
		{"5", nil, io.ErrUnexpectedEOF},
		{"x\n", nil, ErrMalformed},
		{"\n", nil, ErrMalformed},
		{"-1\n", nil, ErrMalformed},
		{"+1\na", nil, ErrMalformed},
		{"1\r\na", nil, ErrMalformed},
		{"4194305\n", nil, ErrMalformed},
		{"99999999999999999999\n", nil, ErrMalformed},
		{"000000000000000000000\n", nil, ErrMalformed},
		{strings.Repeat("1", 5000), nil, ErrMalformed},
		{"<html>", nil, ErrMalformed},
	} {
		for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
			r := NewReader(wrap(strings.NewReader(c.in)), most)
			for _, want := range c.want {
				if got, err := r.Next(); err != nil || string(got) != want {
					t.Errorf("%.20q: got %d bytes, %v; want %d", c.in, len(got), err, len(want))
				}
			}
			if _, err := r.Next(); !errors.Is(err, c.err) {
				t.Errorf("%.20q: error %v, want %v", c.in, err, c.err)
			}
		}
	}
}

func TestErrorsSayWhatCame(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"<html>":                 `begins with "<"; this is not a RecordIO stream`,
		"12ab\n":                 `begins with "12a"`,
		"000000000000000000001x": `begins with "000000000000000000001"`,
		"4194305\n":              "4194305 bytes or more is longer than 4194304",
	} {
		if _, err := NewReader(strings.NewReader(in), most).Next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
	broken := errors.New("broken")
	if _, err := NewReader(iotest.ErrReader(broken), most).Next(); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestALengthCostsNoMemory: who only claims a long record does not make its reader allocate it.
func TestALengthCostsNoMemory(t *testing.T) {
	t.Parallel()
	// What the reader asks its source for is what it has room for.
	asked := 0
	source := readerFunc(func(p []byte) (int, error) {
		if asked = max(asked, len(p)); asked > 1<<20 {
			return 0, errors.New("too much room")
		}
		return copy(p, "1"), nil
	})
	in := io.MultiReader(strings.NewReader("1073741824\n"), io.LimitReader(source, 1<<10))
	if _, err := NewReader(in, 1<<30).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v, %d bytes of room", err, asked)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func FuzzReader(f *testing.F) {
	f.Add([]byte("5\nhello0\n3\nabc"))
	f.Add([]byte("99999999999999999999\nx"))
	f.Add([]byte("4000000\nabc"))
	f.Add([]byte("268435456\nx"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream), 64<<20)
		var again []byte
		var records [][]byte
		for {
			record, err := r.Next()
			if err != nil {
				break
			}
			records = append(records, record)
			again = Append(again, record)
		}
		if len(again) > len(stream) {
			t.Fatalf("%d bytes of records from a stream of %d", len(again), len(stream))
		}
		r = NewReader(bytes.NewReader(again), 64<<20)
		for i, want := range records {
			if got, err := r.Next(); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("record %d: %q, %v; want %q", i, got, err, want)
			}
		}
	})
}
