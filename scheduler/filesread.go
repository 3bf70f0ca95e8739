package scheduler

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// filesRead is the answer of an agent's /files/read.
type filesRead struct {
	Data   logText `json:"data"`
	Offset int64   `json:"offset"`
}

// logText is a piece of a log, byte for byte as it is in the file: its length
// is what the next read must skip. A plain Go string would not do. Apache Mesos
// writes bytes that are no UTF-8 as they are, and may end a piece in the middle
// of a character; encoding/json would put three bytes in the place of each.
// Other agents write \ufffd for such a byte, which then becomes a question mark.
type logText []byte

// UnmarshalJSON reads a JSON string.
func (t *logText) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	if len(raw) < 2 || raw[0] != '"' {
		return errors.New("data is no text")
	}
	raw = raw[1 : len(raw)-1]
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			out = append(out, raw[i])
			continue
		}
		i++
		switch c := raw[i]; c {
		case 'u':
			r, ok := hexRune(raw[i+1:])
			if !ok {
				return errors.New("data has a broken escape")
			}
			i += 4
			if utf16.IsSurrogate(r) && i+6 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
				if low, ok := hexRune(raw[i+3:]); ok {
					r = utf16.DecodeRune(r, low)
					i += 6
				}
			}
			if r == utf8.RuneError || utf16.IsSurrogate(r) {
				out = append(out, '?')
				continue
			}
			out = utf8.AppendRune(out, r)
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		default: // a quote, a slash or a backslash
			out = append(out, c)
		}
	}
	*t = out
	return nil
}

func hexRune(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n), err == nil
}

var _ json.Unmarshaler = (*logText)(nil)
