package placement

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tandem/api"
)

// Constraint limits the agents of a taskgroup: every item must hold, and an
// item holds when one of its terms does. It must have passed api.Validate.
//
// Where earlier systems let a term pass because the types did not match, it
// fails here; a missing attribute fails every term but UNLIKE, which is true of
// what is not there, and EXCLUDE and TOLERATION, which look elsewhere. Only
// taskgroups that are alive count.
type Constraint struct {
	api.Constraint
}

// check returns nil when the agent will do.
func (c Constraint) check(s *Snapshot, a *Agent, r *Request) *Reason {
	if reason := c.taints(a); reason != nil {
		return reason
	}
	for _, item := range c.IntersectionItem {
		var texts []string
		for i := range item.UnionData {
			text := term(s, a, r, &item.UnionData[i])
			if text == "" {
				texts = nil
				break
			}
			texts = append(texts, text)
		}
		if texts != nil {
			return &Reason{"constraint", strings.Join(texts, ", and ")}
		}
	}
	return nil
}

// taints demands that every taint of the agent is tolerated.
func (c Constraint) taints(a *Agent) *Reason {
	for _, at := range attributes(a.Attributes, a.Hostname, taint) {
		for _, t := range at.texts() {
			key, value, _ := strings.Cut(t, "=")
			if !c.tolerates(key, value) {
				return &Reason{"taint", fmt.Sprintf("the agent's taint %s is not tolerated; add a TOLERATION for it", t)}
			}
		}
	}
	return nil
}

func (c Constraint) tolerates(key, value string) bool {
	for _, item := range c.IntersectionItem {
		for i := range item.UnionData {
			t := &item.UnionData[i]
			if t.Operate == api.OpToleration && t.Name == key && t.Text != nil && t.Text.Value == value {
				return true
			}
		}
	}
	return false
}

// term returns "" when the term holds, otherwise why it does not.
func term(s *Snapshot, a *Agent, r *Request, t *api.ConstraintTerm) string {
	switch t.Operate {
	case api.OpToleration:
		return ""
	case api.OpExclude:
		return exclude(s, a, r, t)
	}
	attrs := attributes(a.Attributes, a.Hostname, t.Name)
	if len(attrs) == 0 {
		if t.Operate == api.OpUnlike {
			return ""
		}
		return fmt.Sprintf("%s %s: the agent has no attribute %s", t.Operate, t.Name, t.Name)
	}
	switch t.Operate {
	case api.OpUnique:
		return most(s, attrs, r, t, 1)
	case api.OpMaxPer:
		return most(s, attrs, r, t, limit(t))
	case api.OpGroupBy:
		return groupBy(s, attrs, r, t)
	case api.OpCluster, api.OpLike, api.OpUnlike:
		return matching(attrs, t)
	case api.OpGreater:
		for i := range attrs {
			if attrs[i].Kind == Scalar && t.Scalar != nil && attrs[i].Scalar > t.Scalar.Value {
				return ""
			}
		}
		return fmt.Sprintf("GREATER %s: the agent has %s", t.Name, strings.Join(values(attrs), ", "))
	default:
		return fmt.Sprintf("operator %q is unknown", t.Operate)
	}
}

// sharing counts the taskgroups of the application whose agent has one of these values.
func sharing(s *Snapshot, attrs []Attribute, r *Request, name string) int {
	mine := values(attrs)
	n := 0
	for i := range s.byApp[r.App] {
		l := &s.byApp[r.App][i]
		if l.ID == r.ID {
			continue
		}
		if slices.ContainsFunc(values(attributes(l.Attributes, l.Hostname, name)), func(v string) bool { return slices.Contains(mine, v) }) {
			n++
		}
	}
	return n
}

func most(s *Snapshot, attrs []Attribute, r *Request, t *api.ConstraintTerm, limit int) string {
	if n := sharing(s, attrs, r, t.Name); n >= limit {
		return fmt.Sprintf("%s %s: %d of the application are on %s already, at most %d may be", t.Operate, t.Name, n, strings.Join(values(attrs), ", "), limit)
	}
	return ""
}

func limit(t *api.ConstraintTerm) int {
	switch {
	case t.Text != nil:
		n, err := strconv.Atoi(t.Text.Value)
		if err == nil {
			return n
		}
	case t.Scalar != nil:
		return int(t.Scalar.Value)
	}
	return 0
}

// groupBy spreads the application evenly over the values of the set.
func groupBy(s *Snapshot, attrs []Attribute, r *Request, t *api.ConstraintTerm) string {
	if t.Set == nil || len(t.Set.Item) == 0 {
		return "GROUPBY " + t.Name + ": no set is given"
	}
	in := false
	for i := range attrs {
		in = in || slices.ContainsFunc(attrs[i].texts(), func(v string) bool { return slices.Contains(t.Set.Item, v) })
	}
	if !in {
		return fmt.Sprintf("GROUPBY %s: the agent has %s, none of %s", t.Name, strings.Join(values(attrs), ", "), strings.Join(t.Set.Item, ", "))
	}
	alive := 0
	for i := range s.byApp[r.App] {
		if s.byApp[r.App][i].ID != r.ID {
			alive++
		}
	}
	return most(s, attrs, r, t, int(math.Ceil(float64(alive+1)/float64(len(t.Set.Item)))))
}

// matching is CLUSTER (equal), LIKE (a pattern matches) and UNLIKE (none does).
func matching(attrs []Attribute, t *api.ConstraintTerm) string {
	var wanted []string
	switch {
	case t.Text != nil:
		wanted = []string{t.Text.Value}
	case t.Set != nil:
		wanted = t.Set.Item
	}
	found := false
	for i := range attrs {
		for _, v := range attrs[i].texts() {
			for _, w := range wanted {
				found = found || v == w || t.Operate != api.OpCluster && like(w, v)
			}
		}
	}
	if found != (t.Operate == api.OpUnlike) {
		return ""
	}
	return fmt.Sprintf("%s %s %s: the agent has %s", t.Operate, t.Name, strings.Join(wanted, ", "), strings.Join(values(attrs), ", "))
}

// like matches a shell pattern, or else searches for a regular expression.
func like(pattern, v string) bool {
	if ok, err := path.Match(pattern, v); err == nil && ok {
		return true
	}
	re, err := regexp.Compile(pattern)
	return err == nil && re.MatchString(v)
}

// exclude keeps away from agents where another application with one of the labels lives.
func exclude(s *Snapshot, a *Agent, r *Request, t *api.ConstraintTerm) string {
	if t.Set == nil {
		return "EXCLUDE: no set is given"
	}
	for i := range s.byAgent[a.ID] {
		l := &s.byAgent[a.ID][i]
		if l.App == r.App {
			continue
		}
		for _, item := range t.Set.Item {
			key, value, _ := strings.Cut(item, ":")
			if v, ok := l.Labels[key]; ok && v == value {
				return fmt.Sprintf("EXCLUDE label %s: %s runs on the agent", item, l.App)
			}
		}
	}
	return ""
}
