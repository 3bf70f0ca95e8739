package wire

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gogo/protobuf/proto"
)

// TextForm writes a message in protobuf's text format, as Apache Mesos does in
// its messages for people: fields by number, one a line, two spaces for each
// level. What is no message is written as nothing.
func TextForm(m proto.Message) string {
	if _, err := schemaOf(m); err != nil {
		return ""
	}
	return string(appendText(nil, reflect.ValueOf(m).Elem(), 0))
}

func appendText(b []byte, v reflect.Value, depth int) []byte {
	s := schemaOfType(v.Type())
	fields := slices.SortedFunc(slices.Values(s.fields), func(a, b *field) int { return a.number - b.number })
	for _, f := range fields {
		fv := v.Field(f.index)
		switch {
		case isAbsent(f, fv):
		case fv.Kind() == reflect.Map:
			keys := fv.MapKeys()
			slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
			for _, k := range keys {
				b = indent(b, depth)
				b = append(append(b, f.name...), " {\n"...)
				b = appendTextField(b, &field{name: "key"}, k, depth+1)
				b = appendTextField(b, &field{name: "value", enum: f.enum}, fv.MapIndex(k), depth+1)
				b = append(indent(b, depth), "}\n"...)
			}
		case f.repeated:
			for i := range fv.Len() {
				b = appendTextField(b, f, fv.Index(i), depth)
			}
		default:
			b = appendTextField(b, f, fv, depth)
		}
	}
	return b
}

func appendTextField(b []byte, f *field, v reflect.Value, depth int) []byte {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	b = append(indent(b, depth), f.name...)
	if v.Kind() == reflect.Struct {
		b = append(b, " {\n"...)
		b = appendText(b, v, depth+1)
		return append(indent(b, depth), "}\n"...)
	}
	b = append(b, ": "...)
	switch v.Kind() {
	case reflect.String:
		b = appendEscaped(b, v.String())
	case reflect.Slice:
		b = appendEscaped(b, string(v.Bytes()))
	case reflect.Bool:
		b = strconv.AppendBool(b, v.Bool())
	case reflect.Float32, reflect.Float64:
		b = appendTextDouble(b, v.Float())
	case reflect.Uint32, reflect.Uint64:
		b = strconv.AppendUint(b, v.Uint(), 10)
	default:
		if name, ok := f.enum.name(v.Int()); ok {
			b = append(b, name...)
		} else {
			b = strconv.AppendInt(b, v.Int(), 10)
		}
	}
	return append(b, '\n')
}

// name returns an enumeration's name for a value; a nil enumeration has none.
func (e *enum) name(v int64) (string, bool) {
	if e == nil || v != int64(int32(v)) {
		return "", false
	}
	name, ok := e.names[int32(v)]
	return name, ok
}

func indent(b []byte, depth int) []byte {
	for range depth {
		b = append(b, "  "...)
	}
	return b
}

// appendEscaped writes a quoted text as C would: whatever is not printable ASCII in octal.
func appendEscaped(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '"', '\'', '\\':
			b = append(b, '\\', c)
		default:
			if c < ' ' || c >= 0x7f {
				b = fmt.Appendf(b, `\%03o`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}

// appendTextDouble writes 15 digits at most, or 17 when a number needs them to read back as itself.
func appendTextDouble(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "nan"...)
	case math.IsInf(v, 0):
		return append(b, strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+"))...)
	}
	if text := fmt.Sprintf("%.15g", v); readsBack(text, v) {
		return append(b, text...)
	}
	return fmt.Appendf(b, "%.17g", v)
}

func readsBack(text string, v float64) bool {
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && n == v
}
