package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/wire"
)

// Parse reads resources from a flag: "cpus:4;mem:4096;ports:[31000-32000]", a
// JSON array of Resource messages, or "file:///path" of either. A name may have
// a role: "cpus(web):2". Resources without one get defaultRole.
func Parse(text, defaultRole string) (List, error) {
	text, err := flagText(text)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(text, "[") {
		return parseJSON(text)
	}
	var out List
	var errs []error
	for token := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ';' || c == '\n' }) {
		r, err := parseOne(token, defaultRole)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = out.Add(r)
	}
	return out, errors.Join(errs...)
}

func flagText(text string) (string, error) {
	text = strings.TrimSpace(text)
	if path, ok := strings.CutPrefix(text, "file://"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading the flag's file: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	return text, nil
}

func parseJSON(text string) (List, error) {
	var items []json.RawMessage
	if err := json.Unmarshal([]byte(text), &items); err != nil {
		return nil, fmt.Errorf("resources %q: not a JSON array: %w", text, err)
	}
	var out List
	for i, item := range items {
		var r mesos.Resource
		if _, err := wire.UnmarshalJSON(item, &r); err != nil {
			return nil, fmt.Errorf("resources[%d]: %w", i, err)
		}
		out = out.Add(r)
	}
	return out, nil
}

func parseOne(token, defaultRole string) (mesos.Resource, error) {
	name, text, ok := strings.Cut(token, ":")
	name = strings.TrimSpace(name)
	if !ok || name == "" {
		return mesos.Resource{}, fmt.Errorf("resource %q: expected name:value, such as cpus:4", strings.TrimSpace(token))
	}
	role := defaultRole
	if open := strings.IndexByte(name, '('); open >= 0 {
		if !strings.HasSuffix(name, ")") || open == 0 || open+2 >= len(name) {
			return mesos.Resource{}, fmt.Errorf("resource %q: expected name(role):value", strings.TrimSpace(token))
		}
		name, role = name[:open], strings.TrimSpace(name[open+1:len(name)-1])
	}
	v, err := parseValue(text)
	if err != nil {
		return mesos.Resource{}, fmt.Errorf("resource %q: %w", name, err)
	}
	r := mesos.Resource{Name: name, Type: &v.Type, Scalar: v.Scalar, Ranges: v.Ranges, Set: v.Set}
	switch {
	case v.Type == mesos.TEXT:
		return r, fmt.Errorf("resource %q: value %q is neither a number, [ranges] nor {set}", name, v.Text.Value)
	case v.Type == mesos.SCALAR && v.Scalar.Value < 0:
		return r, fmt.Errorf("resource %q: value %s is negative", name, FormatScalar(v.Scalar.Value))
	}
	if role != "" && role != "*" {
		r.Role = &role
	}
	return Upgrade(r), nil
}

// ParseAttributes reads an agent's attributes: "rack:r1;slots:4;window:[1-5,8-9]".
func ParseAttributes(text string) ([]mesos.Attribute, error) {
	text, err := flagText(text)
	if err != nil {
		return nil, err
	}
	var out []mesos.Attribute
	var errs []error
	for token := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ';' || c == '\n' }) {
		name, value, ok := strings.Cut(token, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("attribute %q: expected name:value, such as rack:r1", strings.TrimSpace(token)))
			continue
		}
		v, err := parseValue(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("attribute %q: %w", name, err))
			continue
		}
		out = append(out, mesos.Attribute{Name: name, Type: v.Type, Scalar: v.Scalar, Ranges: v.Ranges, Set: v.Set, Text: v.Text})
	}
	return out, errors.Join(errs...)
}

var number = regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

// parseValue reads a number, [ranges], {set} or text.
func parseValue(text string) (mesos.Value, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return mesos.Value{}, errors.New("value is missing")
	case text[0] == '[':
		ranges, err := parseRanges(text)
		return mesos.Value{Type: mesos.RANGES, Ranges: &mesos.Value_Ranges{Range: ranges}}, err
	case text[0] == '{':
		items, err := parseSet(text)
		return mesos.Value{Type: mesos.SET, Set: &mesos.Value_Set{Item: items}}, err
	case number.MatchString(text):
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Abs(v) > MaxScalar {
			return mesos.Value{}, fmt.Errorf("number %q is too large", text)
		}
		return mesos.Value{Type: mesos.SCALAR, Scalar: &mesos.Value_Scalar{Value: v}}, nil
	default:
		return mesos.Value{Type: mesos.TEXT, Text: &mesos.Value_Text{Value: text}}, nil
	}
}

func parseRanges(text string) ([]mesos.Value_Range, error) {
	inner, ok := strings.CutSuffix(text[1:], "]")
	if !ok {
		return nil, fmt.Errorf("ranges %q: no closing ]", text)
	}
	var out []mesos.Value_Range
	if strings.TrimSpace(inner) == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(inner, ",") {
		first, last, ok := strings.Cut(part, "-")
		begin, err1 := strconv.ParseUint(strings.TrimSpace(first), 10, 64)
		end, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 64)
		if !ok || err1 != nil || err2 != nil || end < begin {
			return nil, fmt.Errorf("ranges %q: %q is not begin-end, such as 31000-32000", text, strings.TrimSpace(part))
		}
		out = append(out, mesos.Value_Range{Begin: begin, End: end})
	}
	return mergeRanges(out), nil
}

func parseSet(text string) ([]string, error) {
	inner, ok := strings.CutSuffix(text[1:], "}")
	if !ok {
		return nil, fmt.Errorf("set %q: no closing }", text)
	}
	var out []string
	for item := range strings.SplitSeq(inner, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out, nil
}
