package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Quantity is a decimal number in text, such as "0.5". Artifacts may write it
// as a number too.
type Quantity string

// maxQuantity keeps sums of quantities exact.
const maxQuantity = 1e12

// Float returns the amount; 0 when the text is empty.
func (q Quantity) Float() (float64, error) {
	text := strings.TrimSpace(string(q))
	if text == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case !isJSONNumber(text) || err != nil || math.IsInf(f, 0):
		return 0, fmt.Errorf("%q is not a decimal number; write cores or MiB without a unit, such as \"0.5\" or \"512\"", clip(text))
	case f < 0:
		return 0, fmt.Errorf("%s is negative; use 0 or more", clip(text))
	case f > maxQuantity:
		return 0, fmt.Errorf("%s is more than any machine has", clip(text))
	}
	return f, nil
}

// value is Float for quantities that were validated; a bad one counts as 0.
func (q Quantity) value() float64 {
	f, err := q.Float()
	if err != nil {
		return 0
	}
	return f
}

func (q *Quantity) readNode(n *node) string {
	if n.kind != nodeString && n.kind != nodeNumber {
		return "must be a decimal number, not " + n.kind.String()
	}
	*q = Quantity(n.text)
	return ""
}

// UnmarshalJSON takes a text or a number.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	return unmarshalWith(b, q)
}

// UnmarshalJSON takes one text or a list of texts.
func (l *StringList) UnmarshalJSON(b []byte) error {
	return unmarshalWith(b, l)
}

func (l *StringList) readNode(n *node) string {
	items := []*node{n}
	if n.kind == nodeList {
		items = n.items
	}
	*l = nil
	for _, item := range items {
		if item.kind != nodeString {
			return "must be a text or a list of texts"
		}
		if item.text != "" {
			*l = append(*l, item.text)
		}
	}
	return ""
}

// IsZero reports whether the port is absent.
func (t TargetPort) IsZero() bool { return t.Number == 0 && t.Name == "" }

// String returns the number or the name.
func (t TargetPort) String() string {
	if t.Name != "" {
		return t.Name
	}
	return strconv.Itoa(t.Number)
}

// MarshalJSON writes a number or a text.
func (t TargetPort) MarshalJSON() ([]byte, error) {
	if t.Name != "" {
		return json.Marshal(t.Name)
	}
	return json.Marshal(t.Number)
}

// UnmarshalJSON takes a number or a text.
func (t *TargetPort) UnmarshalJSON(b []byte) error {
	return unmarshalWith(b, t)
}

func (t *TargetPort) readNode(n *node) string {
	*t = TargetPort{}
	switch n.kind {
	case nodeString:
		t.Name = n.text
		return ""
	case nodeNumber:
		if problem := intProblem(n); problem != "" {
			return problem
		}
		t.Number, _ = strconv.Atoi(n.text)
		return ""
	default:
		return "must be a port's number or name, not " + n.kind.String()
	}
}

// unmarshalWith lets a type that reads nodes read plain JSON, for stores and
// messages that hold the typed form.
func unmarshalWith(b []byte, r nodeReader) error {
	docs, serr := parseJSON(b)
	if serr != nil {
		return serr
	}
	if len(docs) != 1 {
		return fmt.Errorf("decode: one value expected, there are %d", len(docs))
	}
	if docs[0].kind == nodeNull {
		return nil
	}
	if problem := r.readNode(docs[0]); problem != "" {
		return fmt.Errorf("decode %s: %s", clip(string(b)), problem)
	}
	return nil
}
