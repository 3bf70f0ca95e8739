package api

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Operators of a constraint term.
const (
	OpUnique     = "UNIQUE"
	OpMaxPer     = "MAXPER"
	OpCluster    = "CLUSTER"
	OpLike       = "LIKE"
	OpUnlike     = "UNLIKE"
	OpGroupBy    = "GROUPBY"
	OpExclude    = "EXCLUDE"
	OpGreater    = "GREATER"
	OpToleration = "TOLERATION"
)

// ValueType says which of a term's value objects counts.
type ValueType int

// Types of a term's value.
const (
	ValueNone   ValueType = 0
	ValueScalar ValueType = 1
	ValueRanges ValueType = 2
	ValueText   ValueType = 3
	ValueSet    ValueType = 4
)

// HostnameAttribute is an attribute that every agent has.
const HostnameAttribute = "hostname"

// Constraint limits the agents on which a taskgroup may run: all items must hold.
type Constraint struct {
	IntersectionItem []ConstraintItem `json:"intersectionItem,omitempty"`
	// NodeSelector is read and kept; it has no effect.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// ConstraintItem holds when one of its terms holds.
type ConstraintItem struct {
	UnionData []ConstraintTerm `json:"unionData,omitempty"`
}

// ConstraintTerm compares one attribute of an agent.
type ConstraintTerm struct {
	// Name is the attribute, the word label for EXCLUDE, the taint's key for TOLERATION.
	Name string `json:"name"`
	// Operate is one of the Op constants.
	Operate string            `json:"operate"`
	Type    ValueType         `json:"type,omitempty"`
	Scalar  *ConstraintScalar `json:"scalar,omitempty"`
	Ranges  []ConstraintRange `json:"ranges,omitempty"`
	Text    *ConstraintText   `json:"text,omitempty"`
	Set     *ConstraintSet    `json:"set,omitempty"`
}

// ConstraintScalar is a number to compare with.
type ConstraintScalar struct {
	Value float64 `json:"value"`
}

// ConstraintRange is a range of whole numbers, both ends included.
type ConstraintRange struct {
	Begin uint64 `json:"begin"`
	End   uint64 `json:"end"`
}

// ConstraintText is a text to compare with.
type ConstraintText struct {
	Value string `json:"value"`
}

// ConstraintSet is a set of texts to compare with.
type ConstraintSet struct {
	Item []string `json:"item"`
}

// operators says which types of value each operator takes; ValueNone means
// that it needs none.
var operators = map[string][]ValueType{
	OpUnique:     {ValueNone, ValueScalar, ValueRanges, ValueText, ValueSet},
	OpMaxPer:     {ValueText, ValueScalar},
	OpCluster:    {ValueText, ValueSet},
	OpLike:       {ValueText, ValueSet},
	OpUnlike:     {ValueText, ValueSet},
	OpGroupBy:    {ValueSet},
	OpExclude:    {ValueSet},
	OpGreater:    {ValueScalar},
	OpToleration: {ValueText},
}

var valueKeys = map[ValueType]string{ValueScalar: "scalar", ValueRanges: "ranges", ValueText: "text", ValueSet: "set"}

func (c *checker) constraint(k Constraint) {
	if len(k.NodeSelector) > 0 {
		c.warn("constraint.nodeSelector", "has no effect; write it as intersectionItem with the operator CLUSTER")
	}
	for i, item := range k.IntersectionItem {
		path := indexPath("constraint.intersectionItem", i)
		if len(item.UnionData) == 0 {
			c.fail(joinPath(path, "unionData"), nil, "is empty, so no agent would do; add a term or remove the item")
		}
		for j := range item.UnionData {
			c.term(indexPath(joinPath(path, "unionData"), j), &item.UnionData[j])
		}
	}
}

func (c *checker) term(path string, t *ConstraintTerm) {
	if c.required(joinPath(path, "name"), t.Name) && t.Operate == OpExclude && t.Name != "label" {
		c.fail(joinPath(path, "name"), t.Name, "EXCLUDE looks at labels of applications; write label")
	}
	types, known := operators[t.Operate]
	if !known {
		c.oneOf(joinPath(path, "operate"), t.Operate, sortedKeys(operators)...)
		return
	}
	if !c.valueType(path, t, types) {
		return
	}
	switch t.Operate {
	case OpMaxPer:
		c.maxPer(path, t)
	case OpLike, OpUnlike:
		if t.Type == ValueText {
			c.pattern(path+".text.value", t.Text.Value)
			return
		}
		for i, p := range t.Set.Item {
			c.pattern(indexPath(path+".set.item", i), p)
		}
	case OpExclude:
		for i, p := range t.Set.Item {
			if k, _, ok := strings.Cut(p, ":"); !ok || k == "" {
				c.fail(indexPath(path+".set.item", i), p, "must be a label written as key:value")
			}
		}
	}
}

// valueType checks that the type goes with the operator, and that its value is there.
func (c *checker) valueType(path string, t *ConstraintTerm, types []ValueType) bool {
	if !slices.Contains(types, t.Type) {
		names := make([]string, len(types))
		for i, v := range types {
			names[i] = strconv.Itoa(int(v)) + " (" + valueKeys[v] + ")"
		}
		c.fail(joinPath(path, "type"), int(t.Type), "%s needs a value of type %s", t.Operate, strings.Join(names, " or "))
		return false
	}
	if t.Operate == OpUnique {
		return true
	}
	missing := false
	switch t.Type {
	case ValueScalar:
		missing = t.Scalar == nil
	case ValueText:
		missing = t.Text == nil || t.Text.Value == "" && t.Operate != OpToleration
	case ValueSet:
		missing = t.Set == nil || len(t.Set.Item) == 0
	case ValueNone, ValueRanges:
	}
	if missing {
		c.fail(joinPath(path, valueKeys[t.Type]), nil, "is required with type %d", int(t.Type))
	}
	return !missing
}

func (c *checker) maxPer(path string, t *ConstraintTerm) {
	if t.Type == ValueScalar {
		if v := t.Scalar.Value; v < 1 || v != float64(int(v)) {
			c.fail(path+".scalar.value", v, "must be a whole number of at least 1")
		}
		return
	}
	if n, err := strconv.Atoi(t.Text.Value); err != nil || n < 1 {
		c.fail(path+".text.value", t.Text.Value, "must be a whole number of at least 1")
	}
}

// pattern is a shell pattern or, failing that, a regular expression.
func (c *checker) pattern(at, p string) {
	_, shell := path.Match(p, "")
	_, re := regexp.Compile(p)
	if shell != nil && re != nil {
		c.fail(at, p, "is neither a shell pattern nor a regular expression: %s", re)
	}
}
