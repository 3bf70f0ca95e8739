package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"

	"github.com/gogo/protobuf/proto"
)

// MarshalJSON writes a message as Apache Mesos does: names as in the .proto
// files, enumerations by name, bytes in base64, doubles with a decimal point,
// fields with a default always there, other absent fields and empty lists not.
func MarshalJSON(m proto.Message) ([]byte, error) {
	if _, err := schemaOf(m); err != nil {
		return nil, err
	}
	return appendMessage(nil, reflect.ValueOf(m).Elem())
}

func appendMessage(b []byte, v reflect.Value) ([]byte, error) {
	s := schemaOfType(v.Type())
	b = append(b, '{')
	first := true
	for _, f := range s.fields {
		fv := v.Field(f.index)
		absent := isAbsent(f, fv)
		if absent && f.def == nil {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, f.name...)
		b = append(b, '"', ':')
		if absent {
			b = append(b, f.def...)
			continue
		}
		var err error
		if b, err = appendField(b, f, fv); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return append(b, '}'), nil
}

// isAbsent tells whether C++ would say that the field is not set. Of a field
// that the Go type holds by value only an enum's UNKNOWN can say so; an enum
// that has no name counts as absent in C++, too.
func isAbsent(f *field, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || (f.enum != nil && f.enum.names[int32(v.Elem().Int())] == "")
	case reflect.Slice:
		if f.repeated {
			return v.Len() == 0
		}
		return v.IsNil() && !f.required
	case reflect.Map:
		return v.Len() == 0
	default:
		if f.enum == nil {
			return false
		}
		name := f.enum.names[int32(v.Int())]
		return name == "" || (!f.required && v.Int() == 0 && name == "UNKNOWN")
	}
}

func appendField(b []byte, f *field, v reflect.Value) ([]byte, error) {
	switch {
	case v.Kind() == reflect.Map:
		return appendMap(b, f, v)
	case f.repeated:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendValue(b, f, v.Index(i)); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	default:
		return appendValue(b, f, v)
	}
}

func appendMap(b []byte, f *field, v reflect.Value) ([]byte, error) {
	keys := v.MapKeys()
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, k.String())
		b = append(b, ':')
		var err error
		if b, err = appendValue(b, f, v.MapIndex(k)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, f *field, v reflect.Value) ([]byte, error) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		return appendMessage(b, v)
	case reflect.String:
		return appendString(b, v.String()), nil
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Float32, reflect.Float64:
		return appendDouble(b, v.Float()), nil
	case reflect.Int32, reflect.Int64:
		if f.enum == nil {
			return strconv.AppendInt(b, v.Int(), 10), nil
		}
		name, ok := f.enum.names[int32(v.Int())]
		if !ok {
			return nil, fmt.Errorf("enumeration has no value %d", v.Int())
		}
		return strconv.AppendQuote(b, name), nil
	case reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case reflect.Slice:
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, v.Bytes())
		return append(b, '"'), nil
	default:
		return nil, fmt.Errorf("cannot encode a field of kind %s", v.Kind())
	}
}

func appendString(b []byte, s string) []byte {
	// encoding/json replaces what is not UTF-8, and cannot fail for a string.
	q, _ := json.Marshal(s)
	return append(b, q...)
}

// appendDouble writes a double that reads back as one: 4 becomes 4.0.
func appendDouble(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "0.0"...)
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'f', -1, 64)
	if len(b)-start > 25 {
		return strconv.AppendFloat(b[:start], v, 'e', -1, 64)
	}
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}

// Double is a number that JSON shows with a decimal point, as Mesos does.
type Double float64

// MarshalJSON writes the number.
func (d Double) MarshalJSON() ([]byte, error) { return appendDouble(nil, float64(d)), nil }
