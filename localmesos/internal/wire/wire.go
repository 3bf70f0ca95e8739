// Package wire speaks the Mesos v1 HTTP APIs for the embedded master and agent:
// RecordIO framing, media types, JSON and protobuf coding of calls and events,
// event streams and the plain-text errors, all as Apache Mesos writes them.
//
// It is for localmesos only. It must never know what a call means: it decodes,
// encodes and frames, and leaves every decision to the caller.
package wire

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/gogo/protobuf/proto"
)

// MediaType is the form of a body: JSON or Protobuf.
type MediaType string

// The media types of the v1 APIs.
const (
	JSON     MediaType = "application/json"
	Protobuf MediaType = "application/x-protobuf"
)

// Present names the top-level fields that a decoded message had, by their
// protobuf names. The Go types cannot tell an absent enum from UNKNOWN.
type Present map[string]bool

// Marshal encodes a message. The message must be a pointer to a mesos-go type.
func Marshal(mt MediaType, m proto.Message) ([]byte, error) {
	switch mt {
	case JSON:
		return MarshalJSON(m)
	case Protobuf:
		b, err := proto.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("encoding %T as protobuf: %w", m, err)
		}
		return b, nil
	default:
		return nil, fmt.Errorf("unknown media type %q: use %s or %s", mt, JSON, Protobuf)
	}
}

// Unmarshal decodes a message into m. Its errors are worded as the bodies of
// Apache Mesos's 400 answers.
func Unmarshal(mt MediaType, data []byte, m proto.Message) (Present, error) {
	switch mt {
	case JSON:
		return UnmarshalJSON(data, m)
	case Protobuf:
		name := shortName(m)
		present, err := topLevel(data, m)
		if err != nil {
			return nil, wording("Failed to parse body into %s protobuf", name)
		}
		if err := proto.Unmarshal(data, m); err != nil || !dropUnnamed(reflect.ValueOf(m).Elem()) {
			return nil, wording("Failed to parse body into %s protobuf", name)
		}
		return present, nil
	default:
		return nil, fmt.Errorf("unknown media type %q: use %s or %s", mt, JSON, Protobuf)
	}
}

// topLevel finds which fields an encoded message has. An enum whose value has
// no name counts as absent, as it does in C++.
func topLevel(data []byte, m proto.Message) (Present, error) {
	s, err := schemaOf(m)
	if err != nil {
		return nil, err
	}
	present := Present{}
	for len(data) > 0 {
		key, n := proto.DecodeVarint(data)
		if n == 0 {
			return nil, errTruncated
		}
		data = data[n:]
		var size int
		var value uint64
		switch key & 7 {
		case proto.WireVarint:
			value, size = proto.DecodeVarint(data)
			if size == 0 {
				return nil, errTruncated
			}
		case proto.WireFixed64:
			size = 8
		case proto.WireFixed32:
			size = 4
		case proto.WireBytes:
			l, n := proto.DecodeVarint(data)
			if n == 0 || l > uint64(len(data)-n) {
				return nil, errTruncated
			}
			size = n + int(l)
		default:
			return nil, fmt.Errorf("unexpected wire type %d", key&7)
		}
		if size > len(data) {
			return nil, errTruncated
		}
		data = data[size:]
		f := s.byNumber[int(key>>3)]
		if f == nil || (f.enum != nil && f.enum.names[int32(value)] == "") {
			continue
		}
		present[f.name] = true
	}
	return present, nil
}

var errTruncated = errors.New("truncated message")

// wordingError is a text that goes to clients as it is, in Mesos's own words.
type wordingError string

// Error returns the text.
func (e wordingError) Error() string { return string(e) }

func wording(format string, args ...any) error { return wordingError(fmt.Sprintf(format, args...)) }
