// Package execstream carries a session in a task over one connection: input and
// changes of the terminal's size one way, output and how the command ended the
// other. The command line and the executor speak it; what is between them passes
// bytes on. It must never know what is run, or where.
package execstream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind tells what a frame holds.
type Kind byte

// The kinds of frames.
const (
	// Stdin is input; an empty one is its end.
	Stdin Kind = 1
	// Resize holds a Size.
	Resize Kind = 2
	// Stdout and Stderr are output. With a terminal everything is Stdout.
	Stdout Kind = 3
	Stderr Kind = 4
	// Ended holds an End; nothing comes after it.
	Ended Kind = 5
)

// MaxPayload is the most that a frame holds, in bytes.
const MaxPayload = 32 << 10

// Size is that of a terminal, in characters.
type Size struct {
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// End tells how a command ended. With an Error it is not known, or it never began.
type End struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// Writer writes frames; it may be used by several goroutines.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Send writes a payload of any length, in as many frames as it takes; an empty
// one is a frame, too.
func (w *Writer) Send(k Kind, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		piece := payload[:min(len(payload), MaxPayload)]
		frame := make([]byte, 5, 5+len(piece))
		frame[0] = byte(k)
		binary.BigEndian.PutUint32(frame[1:], uint32(len(piece)))
		if _, err := w.w.Write(append(frame, piece...)); err != nil {
			return err
		}
		if payload = payload[len(piece):]; len(payload) == 0 {
			return nil
		}
	}
}

// SendJSON writes a Size or an End.
func (w *Writer) SendJSON(k Kind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a frame: %w", err)
	}
	return w.Send(k, b)
}

// To returns an io.Writer that makes frames of a kind. Nothing is no frame: that would be an end.
func (w *Writer) To(k Kind) io.Writer { return kindWriter{w, k} }

type kindWriter struct {
	w *Writer
	k Kind
}

func (k kindWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := k.w.Send(k.k, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Reader reads frames. It does not read ahead.
type Reader struct {
	r   io.Reader
	buf []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the next frame; its payload is valid until the next call. At a
// clean end it returns io.EOF, in the middle of a frame io.ErrUnexpectedEOF.
func (r *Reader) Next() (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, err
	}
	k, n := Kind(head[0]), binary.BigEndian.Uint32(head[1:])
	if k < Stdin || k > Ended || n > MaxPayload {
		return 0, nil, fmt.Errorf("frame of kind %d with %d bytes: this is no session", head[0], n)
	}
	if r.buf == nil {
		r.buf = make([]byte, MaxPayload)
	}
	if _, err := io.ReadFull(r.r, r.buf[:n]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return k, r.buf[:n], nil
}
