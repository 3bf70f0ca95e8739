package execstream

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFramesThereAndBack(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := NewWriter(&b)
	long := bytes.Repeat([]byte("x"), 2*MaxPayload+7)
	if n, err := w.To(Stdout).Write(long); n != len(long) || err != nil {
		t.Fatal(n, err)
	}
	if _, err := w.To(Stderr).Write(nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Send(Stdin, nil), w.SendJSON(Ended, End{Code: 3})); err != nil {
		t.Fatal(err)
	}
	r := NewReader(&b)
	var got []byte
	for range 3 {
		k, p, err := r.Next()
		if k != Stdout || err != nil {
			t.Fatal(k, err)
		}
		got = append(got, p...)
	}
	if !bytes.Equal(got, long) {
		t.Errorf("%d bytes, want %d", len(got), len(long))
	}
	if k, p, err := r.Next(); k != Stdin || len(p) != 0 || err != nil {
		t.Errorf("%d %q %v", k, p, err)
	}
	if k, p, err := r.Next(); k != Ended || string(p) != `{"code":3}` || err != nil {
		t.Errorf("%d %q %v", k, p, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 'x'})
	f.Add([]byte{9, 0, 0, 0, 1})
	f.Add([]byte{3, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		for {
			k, p, err := r.Next()
			if err != nil {
				return
			}
			if k < Stdin || k > Ended || len(p) > MaxPayload {
				t.Fatalf("kind %d, %d bytes", k, len(p))
			}
		}
	})
}
