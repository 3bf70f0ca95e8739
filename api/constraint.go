package api

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
