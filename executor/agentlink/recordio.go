package agentlink

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxRecord is far above any event: a task group with all its specifications.
const maxRecord = 64 << 20

// reader splits a RecordIO stream: decimal length, '\n', that many bytes.
type reader struct {
	r *bufio.Reader
}

func newReader(r io.Reader) *reader { return &reader{bufio.NewReaderSize(r, 4<<10)} }

// next returns the next record. io.EOF means that the stream ended between two
// records, io.ErrUnexpectedEOF that it ended within one.
func (r *reader) next() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errors.New("record length from the agent has no end of line")
	case err != nil:
		return nil, err
	}
	n, err := strconv.ParseUint(string(line[:len(line)-1]), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("record length from the agent: %w", err)
	}
	if n > maxRecord {
		return nil, fmt.Errorf("record of %d bytes from the agent is longer than %d", n, maxRecord)
	}
	// Read in steps: a length alone must not make us allocate all of it.
	record := make([]byte, 0, min(n, 64<<10))
	for uint64(len(record)) < n {
		step := min(n-uint64(len(record)), 1<<20)
		have := len(record)
		record = append(record, make([]byte, step)...)
		if _, err := io.ReadFull(r.r, record[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return record, nil
}
