package mesos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxRecord is the largest event accepted. An OFFERS event of a cluster with
// ten thousand agents has some 20 MiB.
const maxRecord = 256 << 20

// readRecord reads one RecordIO record: its length in decimal, a newline, and so many bytes.
func readRecord(r *bufio.Reader) ([]byte, error) {
	var digits [20]byte
	n := 0
	for {
		c, err := r.ReadByte()
		if err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if c == '\n' {
			break
		}
		if n == len(digits) || c < '0' || c > '9' {
			return nil, fmt.Errorf("record length begins with %q: not a RecordIO stream", append(digits[:n], c))
		}
		digits[n] = c
		n++
	}
	size, err := strconv.ParseUint(string(digits[:n]), 10, 32)
	if err != nil || size > maxRecord {
		return nil, fmt.Errorf("record length %q is not a number up to %d", digits[:n], maxRecord)
	}
	// The buffer grows with what arrives, so that a length alone costs no memory.
	buf := make([]byte, 0, min(size, 64<<10))
	for uint64(len(buf)) < size {
		step := min(size-uint64(len(buf)), uint64(max(cap(buf), 64<<10)))
		start := len(buf)
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(r, buf[start:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}
