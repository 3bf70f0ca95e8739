package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gogo/protobuf/proto"
)

// UnmarshalJSON reads a message as Apache Mesos does: unknown fields and null
// are passed over, an optional enumeration with an unknown name counts as
// absent, a required one is an error, and so are wrong types and missing
// required fields at any depth. The errors are worded as Mesos words them.
func UnmarshalJSON(data []byte, m proto.Message) (Present, error) {
	s, err := schemaOf(m)
	if err != nil {
		return nil, err
	}
	tree, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	convert := "Failed to convert JSON into " + shortName(m) + " protobuf: "
	object, ok := tree.(map[string]any)
	if !ok {
		return nil, wording("%s", convert+"Expecting a JSON object")
	}
	v := reflect.ValueOf(m).Elem()
	v.SetZero()
	present, missing, err := decodeMessage(s, object, v, "")
	if err != nil {
		return nil, wording("%s", convert+err.Error())
	}
	if len(missing) > 0 {
		return nil, wording("%s", convert+"Missing required fields: "+strings.Join(missing, ", "))
	}
	return present, nil
}

func parseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		line := 1 + bytes.Count(data[:min(int(d.InputOffset()), len(data))], []byte{'\n'})
		return nil, wording("Failed to parse body into JSON: syntax error at line %d near: ", line)
	}
	rest := data[d.InputOffset():]
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, wording("Failed to parse body into JSON: Parsed JSON included non-whitespace trailing characters: %s", rest)
	}
	return tree, nil
}

// decodeMessage fills v, and returns which fields were there and the paths of
// the required ones that were not, own ones first, as protobuf lists them.
func decodeMessage(s *schema, object map[string]any, v reflect.Value, path string) (Present, []string, error) {
	present := Present{}
	var inner []string
	for _, f := range s.fields {
		raw, ok := object[f.name]
		if !ok || raw == nil {
			continue
		}
		set, missing, err := decodeField(f, raw, v.Field(f.index), path+f.name)
		if err != nil {
			return nil, nil, err
		}
		if set {
			present[f.name] = true
		}
		inner = append(inner, missing...)
	}
	var own []string
	for _, f := range s.fields {
		if f.required && !present[f.name] {
			own = append(own, path+f.name)
		}
	}
	return present, slices.Concat(own, inner), nil
}

func decodeField(f *field, raw any, v reflect.Value, path string) (set bool, missing []string, err error) {
	if v.Kind() == reflect.Map {
		return decodeMap(f, raw, v, path)
	}
	list, isList := raw.([]any)
	if isList && !f.repeated {
		return false, nil, notExpecting(raw, f)
	}
	if !f.repeated {
		return decodeValue(f, raw, v, path)
	}
	if !isList {
		list = []any{raw}
	}
	for _, item := range list {
		element := reflect.New(v.Type().Elem()).Elem()
		set, m, err := decodeValue(f, item, element, fmt.Sprintf("%s[%d]", path, v.Len()))
		if err != nil {
			return false, nil, err
		}
		if set {
			v.Set(reflect.Append(v, element))
			missing = append(missing, m...)
		}
	}
	return true, missing, nil
}

func decodeMap(f *field, raw any, v reflect.Value, path string) (bool, []string, error) {
	object, ok := raw.(map[string]any)
	if !ok {
		return false, nil, notExpecting(raw, f)
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(object)))
	var missing []string
	for key, item := range object {
		element := reflect.New(v.Type().Elem()).Elem()
		_, m, err := decodeValue(f, item, element, path+"["+key+"]")
		if err != nil {
			return false, nil, err
		}
		missing = append(missing, m...)
		v.SetMapIndex(reflect.ValueOf(key), element)
	}
	slices.Sort(missing)
	return true, missing, nil
}

// decodeValue fills one value; set is false when it counts as absent.
func decodeValue(f *field, raw any, v reflect.Value, path string) (set bool, missing []string, err error) {
	if raw == nil {
		return false, nil, nil
	}
	target := v
	if v.Kind() == reflect.Pointer {
		target = reflect.New(v.Type().Elem()).Elem()
	}
	set = true
	switch target.Kind() {
	case reflect.Struct:
		object, ok := raw.(map[string]any)
		if !ok {
			return false, nil, notExpecting(raw, f)
		}
		_, missing, err = decodeMessage(schemaOfType(target.Type()), object, target, path+".")
	case reflect.String:
		text, ok := raw.(string)
		if !ok {
			return false, nil, notExpecting(raw, f)
		}
		target.SetString(text)
	case reflect.Bool:
		truth, ok := raw.(bool)
		if !ok {
			return false, nil, notExpecting(raw, f)
		}
		target.SetBool(truth)
	case reflect.Slice:
		err = decodeBytes(f, raw, target)
	default:
		if f.enum != nil {
			set, err = decodeEnum(f, raw, target)
		} else {
			err = decodeNumber(f, raw, target)
		}
	}
	if err != nil || !set {
		return false, nil, err
	}
	if v.Kind() == reflect.Pointer {
		v.Set(target.Addr())
	}
	return true, missing, nil
}

func decodeEnum(f *field, raw any, v reflect.Value) (bool, error) {
	name, ok := raw.(string)
	if !ok {
		return false, notExpecting(raw, f)
	}
	value, ok := f.enum.values[name]
	if !ok {
		if f.required {
			return false, wording("Failed to find enum for '%s'", name)
		}
		return false, nil
	}
	v.SetInt(int64(value))
	return true, nil
}

func decodeBytes(f *field, raw any, v reflect.Value) error {
	text, ok := raw.(string)
	if !ok {
		return notExpecting(raw, f)
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		what := err.Error()
		var corrupt base64.CorruptInputError
		if errors.As(err, &corrupt) && int(corrupt) < len(text) {
			what = fmt.Sprintf("Invalid character '%c'", text[corrupt])
		}
		return wording("Failed to base64 decode bytes field '%s': %s", f.name, what)
	}
	v.SetBytes(b)
	return nil
}

// decodeNumber takes a JSON number, or a text that is one.
func decodeNumber(f *field, raw any, v reflect.Value) error {
	var text string
	switch r := raw.(type) {
	case json.Number:
		text = r.String()
	case string:
		text = r
	default:
		return notExpecting(raw, f)
	}
	bad := wording("Failed to parse '%s' as a JSON number for field '%s'", text, f.name)
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return bad
		}
		v.SetFloat(n)
		return nil
	case reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			n, err = unsignedOf(text)
		}
		if err != nil || v.OverflowUint(n) {
			return bad
		}
		v.SetUint(n)
		return nil
	case reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			n, err = signedOf(text)
		}
		if err != nil || v.OverflowInt(n) {
			return bad
		}
		v.SetInt(n)
		return nil
	default:
		return notExpecting(raw, f)
	}
}

var errNotWhole = errors.New("not a whole number")

// signedOf takes a whole number that is written as a double, such as 5.0 or 1e3.
func signedOf(text string) (int64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) >= 1<<63 {
		return 0, errNotWhole
	}
	return int64(n), nil
}

func unsignedOf(text string) (uint64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != math.Trunc(n) || n < 0 || n >= 1<<64 {
		return 0, errNotWhole
	}
	return uint64(n), nil
}

func notExpecting(raw any, f *field) error {
	kind := "object"
	switch raw.(type) {
	case string:
		kind = "string"
	case json.Number:
		kind = "number"
	case bool:
		kind = "boolean"
	case []any:
		kind = "array"
	}
	return wording("Not expecting a JSON %s for field '%s'", kind, f.name)
}
