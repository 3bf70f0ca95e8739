package placement

import (
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of an attribute or of a constraint's operand, numbered as artifacts number it.
type Kind int

// The kinds; their numbers are those of unionData.type.
const (
	Scalar Kind = 1
	Range  Kind = 2
	Text   Kind = 3
	Set    Kind = 4
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Scalar:
		return "scalar"
	case Range:
		return "range"
	case Text:
		return "text"
	case Set:
		return "set"
	default:
		return "unknown type " + strconv.Itoa(int(k))
	}
}

// Span is a range of numbers, both ends included.
type Span struct {
	Begin uint64 `json:"begin"`
	End   uint64 `json:"end"`
}

// Attribute is an attribute of an agent. An agent may have several of one name.
type Attribute struct {
	Name   string   `json:"name"`
	Kind   Kind     `json:"kind"`
	Scalar float64  `json:"scalar,omitempty"`
	Ranges []Span   `json:"ranges,omitempty"`
	Text   string   `json:"text,omitempty"`
	Set    []string `json:"set,omitempty"`
}

// Value renders the attribute; two attributes are equal when it is.
func (a *Attribute) Value() string {
	switch a.Kind {
	case Scalar:
		return strconv.FormatFloat(a.Scalar, 'f', -1, 64)
	case Range:
		parts := make([]string, len(a.Ranges))
		for i, r := range a.Ranges {
			parts[i] = strconv.FormatUint(r.Begin, 10) + "-" + strconv.FormatUint(r.End, 10)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case Set:
		items := slices.Sorted(slices.Values(a.Set))
		return "{" + strings.Join(items, ",") + "}"
	default:
		return a.Text
	}
}

// texts are the texts that the attribute can be compared by: a text, or the items of a set.
func (a *Attribute) texts() []string {
	switch a.Kind {
	case Text:
		return []string{a.Text}
	case Set:
		return a.Set
	default:
		return nil
	}
}

// hostname is the attribute that every agent has.
const hostname = "hostname"

// taint is the attribute whose values, key=value, an application must tolerate.
const taint = "NoSchedule"

// attributes returns those of one name; hostname is always there.
func attributes(all []Attribute, host, name string) []Attribute {
	if name == hostname {
		return []Attribute{{Name: hostname, Kind: Text, Text: host}}
	}
	var out []Attribute
	for i := range all {
		if all[i].Name == name {
			out = append(out, all[i])
		}
	}
	return out
}

func values(attrs []Attribute) []string {
	out := make([]string, len(attrs))
	for i := range attrs {
		out[i] = attrs[i].Value()
	}
	return out
}
