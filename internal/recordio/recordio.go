// Package recordio frames the event streams of the Mesos v1 HTTP APIs: each
// record is its length in decimal, a line feed, and so many bytes. It is for
// both ends of such a stream: scheduler, executor, embedded master and agent.
//
// A stream is hostile: a record has a bound, and a length that is only claimed
// costs no memory. The package must never look into a record.
package recordio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ErrMalformed is wrapped by the errors about a length that is no number or above the bound.
var ErrMalformed = errors.New("malformed RecordIO")

// Reader reads the records of one stream.
type Reader struct {
	r    *bufio.Reader
	most int64
}

// NewReader returns a reader of the records of r that takes none longer than
// most bytes. It reads ahead; a bufio.Reader of at least the usual size is used as it is.
func NewReader(r io.Reader, most int) *Reader {
	return &Reader{r: bufio.NewReader(r), most: int64(most)}
}

// Next returns the next record; it is the caller's. The error is io.EOF when the
// stream ends between two records, io.ErrUnexpectedEOF when it ends within one,
// and wraps ErrMalformed when no record can be told.
func (r *Reader) Next() ([]byte, error) {
	size, err := r.length()
	if err != nil {
		return nil, err
	}
	// The length is the sender's claim: the memory grows with what really comes.
	const first = 64 << 10
	record := make([]byte, 0, min(size, first))
	for int64(len(record)) < size {
		have := len(record)
		record = append(record, make([]byte, min(size-int64(have), int64(max(have, first))))...)
		if _, err := io.ReadFull(r.r, record[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return record, nil
}

// length reads the line before a record.
func (r *Reader) length() (int64, error) {
	var line [20]byte // as long as the longest 64 bit number
	size := int64(0)
	for n := 0; ; n++ {
		c, err := r.r.ReadByte()
		switch {
		case err != nil && n > 0 && errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case c == '\n' && n > 0:
			return size, nil
		case c < '0' || c > '9' || n == len(line):
			return 0, fmt.Errorf("%w: a record's length begins with %q; this is not a RecordIO stream", ErrMalformed, append(line[:n:n], c))
		}
		line[n] = c
		if size = size*10 + int64(c-'0'); size > r.most {
			return 0, fmt.Errorf("%w: a record of %s bytes or more is longer than %d", ErrMalformed, line[:n+1], r.most)
		}
	}
}

// Append appends one framed record to b.
func Append(b, record []byte) []byte {
	b = strconv.AppendInt(b, int64(len(record)), 10)
	b = append(b, '\n')
	return append(b, record...)
}
