package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// MaxRecord is the largest record that a RecordReader takes, in bytes.
const MaxRecord = 64 << 20

// ErrBadRecord is returned for a record whose length line is no number or too large.
var ErrBadRecord = errors.New("malformed RecordIO")

// AppendRecord appends one record: the length in decimal, a line feed, the bytes.
func AppendRecord(b, record []byte) []byte {
	b = strconv.AppendInt(b, int64(len(record)), 10)
	b = append(b, '\n')
	return append(b, record...)
}

// RecordReader reads records from a stream.
type RecordReader struct {
	r *bufio.Reader
}

// NewRecordReader returns a reader of the records of r.
func NewRecordReader(r io.Reader) *RecordReader {
	return &RecordReader{r: bufio.NewReader(r)}
}

// Next returns the next record. The error is io.EOF at the end of the stream,
// io.ErrUnexpectedEOF when it ends inside a record, ErrBadRecord otherwise.
func (r *RecordReader) Next() ([]byte, error) {
	size, err := r.length()
	if err != nil {
		return nil, err
	}
	// The length is the sender's claim: grow with what really comes.
	const step = 1 << 20
	record := make([]byte, 0, min(size, step))
	for len(record) < size {
		n := min(size-len(record), step)
		start := len(record)
		record = append(record, make([]byte, n)...)
		if _, err := io.ReadFull(r.r, record[start:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return record, nil
}

func (r *RecordReader) length() (int, error) {
	const maxDigits = 20
	size := 0
	for digits := 0; ; digits++ {
		c, err := r.r.ReadByte()
		switch {
		case err != nil && digits > 0 && errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case c == '\n' && digits > 0:
			return size, nil
		case c < '0' || c > '9' || digits == maxDigits:
			return 0, fmt.Errorf("%w: unexpected byte %q in a length", ErrBadRecord, c)
		}
		if size = size*10 + int(c-'0'); size > MaxRecord {
			return 0, fmt.Errorf("%w: record larger than %d bytes", ErrBadRecord, MaxRecord)
		}
	}
}
