// Package resource holds the arithmetic of Mesos resources and the text forms of
// resources and attributes, for the embedded master and agent.
//
// It keeps resources in the form of RESERVATION_REFINEMENT (no role, a list of
// reservations), as the Mesos master does inside; Upgrade and Downgrade convert.
// It must never round silently: scalars have three decimals, ranges are exact.
package resource

import (
	"math"
	"slices"
	"strconv"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// List is a set of resources, in the order in which they were added. Its
// methods return new lists and leave their operands alone. Two resources of a
// List never have the same name, type and metadata.
type List []mesos.Resource

// Of makes a List of resources as they come from a framework or an agent.
func Of(resources []mesos.Resource) List {
	return List(nil).Add(resources...)
}

// Add returns the sum.
func (l List) Add(resources ...mesos.Resource) List {
	out := slices.Clone(l)
	for _, r := range resources {
		r = Upgrade(r)
		if isEmpty(r) {
			continue
		}
		if i := out.find(r); i >= 0 {
			out[i] = addValue(out[i], r)
		} else {
			out = append(out, normal(r))
		}
	}
	return out
}

// Sub returns the difference. What l does not have is not subtracted.
func (l List) Sub(resources ...mesos.Resource) List {
	out := slices.Clone(l)
	for _, r := range resources {
		i := out.find(Upgrade(r))
		if i < 0 {
			continue
		}
		if out[i] = subValue(out[i], r); isEmpty(out[i]) {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// Contains tells whether all the resources together are in l.
func (l List) Contains(resources ...mesos.Resource) bool { return l.Covers(Of(resources)) }

// Covers is Contains of what is a List already, without making one.
func (l List) Covers(o List) bool {
	for i := range o {
		j := l.find(o[i])
		if j < 0 || !hasValue(l[j], o[i]) {
			return false
		}
	}
	return true
}

// HasAmounts tells whether the scalars of l, whatever they are reserved for, add up
// to at least as much of everything.
func (l List) HasAmounts(q Quantities) bool {
	for name, amount := range q {
		sum := int64(0)
		for i := range l {
			if l[i].Name == name && l[i].Scalar != nil {
				sum += fixed(l[i].Scalar.Value)
			}
		}
		if sum < amount {
			return false
		}
	}
	return true
}

// Empty tells that there is nothing in l.
func (l List) Empty() bool { return len(l) == 0 }

// Equal tells whether both hold the same, in any order.
func (l List) Equal(o List) bool { return l.Contains(o...) && o.Contains(l...) }

// Allocate returns l as allocated to a role.
func (l List) Allocate(role string) List {
	out := make(List, 0, len(l))
	for _, r := range l {
		r.AllocationInfo = &mesos.Resource_AllocationInfo{Role: &role}
		out = append(out, r)
	}
	return out
}

// Unallocate returns l without allocations.
func (l List) Unallocate() List {
	var out List
	for _, r := range l {
		r.AllocationInfo = nil
		out = out.Add(r)
	}
	return out
}

// Scalar returns the sum of the scalars of a name, and whether there is one.
func (l List) Scalar(name string) (float64, bool) {
	total, found := int64(0), false
	for _, r := range l {
		if r.Name == name && r.GetScalar() != nil {
			total, found = total+fixed(r.Scalar.Value), true
		}
	}
	return float(total), found
}

// RangesFirst returns l with ranges and sets before scalars, which is the
// order in which Mesos offers an agent's resources.
func (l List) RangesFirst() List {
	out := slices.Clone(l)
	slices.SortStableFunc(out, func(a, b mesos.Resource) int {
		return boolOrder(a.GetType() == mesos.SCALAR) - boolOrder(b.GetType() == mesos.SCALAR)
	})
	return out
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Downgraded returns the resources in the form for frameworks and agents
// without RESERVATION_REFINEMENT.
func (l List) Downgraded() []mesos.Resource {
	out := make([]mesos.Resource, 0, len(l))
	for _, r := range l {
		out = append(out, Downgrade(r))
	}
	return out
}

// String writes l as Mesos does in its messages: "cpus(allocated: *):0.1; ports:[1-2]".
func (l List) String() string {
	var b strings.Builder
	for i, r := range l {
		if i > 0 {
			b.WriteString("; ")
		}
		writeResource(&b, r)
	}
	return b.String()
}

func writeResource(b *strings.Builder, r mesos.Resource) {
	b.WriteString(r.Name)
	if r.AllocationInfo != nil {
		b.WriteString("(allocated: " + r.AllocationInfo.GetRole() + ")")
	}
	if n := len(r.Reservations); n > 0 {
		b.WriteString("(reservations: [")
		for i, v := range r.Reservations {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString("(" + v.GetType().String() + "," + v.GetRole())
			if v.Principal != nil {
				b.WriteString("," + *v.Principal)
			}
			b.WriteString(")")
		}
		b.WriteString("])")
	}
	b.WriteString(":")
	switch r.GetType() {
	case mesos.SCALAR:
		b.WriteString(FormatScalar(r.GetScalar().GetValue()))
	case mesos.RANGES:
		b.WriteString(FormatRanges(r.GetRanges().GetRange()))
	case mesos.SET:
		b.WriteString("{" + strings.Join(r.GetSet().GetItem(), ",") + "}")
	case mesos.TEXT: // no resource has it
	}
}

// FormatScalar writes a scalar with up to three decimals.
func FormatScalar(v float64) string {
	return strconv.FormatFloat(float(fixed(v)), 'f', -1, 64)
}

// find returns the index of the resource that differs from r in its value only, or -1.
func (l List) find(r mesos.Resource) int {
	return slices.IndexFunc(l, func(o mesos.Resource) bool { return sameKind(o, r) })
}

func sameKind(a, b mesos.Resource) bool {
	if a.Name != b.Name || a.GetType() != b.GetType() || len(a.Reservations) != len(b.Reservations) {
		return false
	}
	if (a.AllocationInfo == nil) != (b.AllocationInfo == nil) || a.AllocationInfo.GetRole() != b.AllocationInfo.GetRole() {
		return false
	}
	for i := range a.Reservations {
		if !a.Reservations[i].Equal(b.Reservations[i]) {
			return false
		}
	}
	return a.Disk.Equal(b.Disk) && a.ProviderID.Equal(b.ProviderID) &&
		(a.Revocable == nil) == (b.Revocable == nil) && (a.Shared == nil) == (b.Shared == nil)
}

func isEmpty(r mesos.Resource) bool {
	switch r.GetType() {
	case mesos.SCALAR:
		return fixed(r.GetScalar().GetValue()) == 0
	case mesos.RANGES:
		return len(r.GetRanges().GetRange()) == 0
	case mesos.SET:
		return len(r.GetSet().GetItem()) == 0
	case mesos.TEXT: // no resource has it
	}
	return true
}

// normal returns r with a value of its own, rounded, sorted and merged.
func normal(r mesos.Resource) mesos.Resource {
	switch r.GetType() {
	case mesos.SCALAR:
		r.Scalar = &mesos.Value_Scalar{Value: float(fixed(r.GetScalar().GetValue()))}
	case mesos.RANGES:
		r.Ranges = &mesos.Value_Ranges{Range: mergeRanges(r.GetRanges().GetRange())}
	case mesos.SET:
		items := slices.Clone(r.GetSet().GetItem())
		slices.Sort(items)
		r.Set = &mesos.Value_Set{Item: slices.Compact(items)}
	case mesos.TEXT: // no resource has it
	}
	return r
}

func addValue(a, b mesos.Resource) mesos.Resource {
	switch a.GetType() {
	case mesos.SCALAR:
		a.Scalar = &mesos.Value_Scalar{Value: float(fixed(a.GetScalar().GetValue()) + fixed(b.GetScalar().GetValue()))}
		return a
	case mesos.RANGES:
		a.Ranges = &mesos.Value_Ranges{Range: slices.Concat(a.GetRanges().GetRange(), b.GetRanges().GetRange())}
	case mesos.SET:
		a.Set = &mesos.Value_Set{Item: slices.Concat(a.GetSet().GetItem(), b.GetSet().GetItem())}
	case mesos.TEXT: // no resource has it
	}
	return normal(a)
}

func subValue(a, b mesos.Resource) mesos.Resource {
	switch a.GetType() {
	case mesos.SCALAR:
		left := max(0, fixed(a.GetScalar().GetValue())-fixed(b.GetScalar().GetValue()))
		a.Scalar = &mesos.Value_Scalar{Value: float(left)}
	case mesos.RANGES:
		a.Ranges = &mesos.Value_Ranges{Range: subRanges(a.GetRanges().GetRange(), b.GetRanges().GetRange())}
	case mesos.SET:
		drop := b.GetSet().GetItem()
		items := slices.DeleteFunc(slices.Clone(a.GetSet().GetItem()), func(s string) bool { return slices.Contains(drop, s) })
		a.Set = &mesos.Value_Set{Item: items}
	case mesos.TEXT: // no resource has it
	}
	return a
}

func hasValue(a, b mesos.Resource) bool {
	switch a.GetType() {
	case mesos.SCALAR:
		return fixed(a.GetScalar().GetValue()) >= fixed(b.GetScalar().GetValue())
	case mesos.RANGES:
		return len(subRanges(mergeRanges(b.GetRanges().GetRange()), a.GetRanges().GetRange())) == 0
	case mesos.SET:
		for _, item := range b.GetSet().GetItem() {
			if !slices.Contains(a.GetSet().GetItem(), item) {
				return false
			}
		}
		return true
	case mesos.TEXT: // no resource has it
	}
	return false
}

// MaxScalar is the largest amount that counts as itself: as a number of
// megabytes an exabyte. Sums of thousands of such amounts do not overflow.
const MaxScalar = 1e12

// fixed converts a scalar to thousandths, which is how Mesos counts. What is
// larger than any agent has counts as MaxScalar, and not as what an overflow makes of it.
func fixed(v float64) int64 {
	if math.IsNaN(v) {
		return 0
	}
	return int64(math.Round(min(max(v, -MaxScalar), MaxScalar) * 1000))
}

func float(v int64) float64 { return float64(v/1000) + float64(v%1000)/1000 }

// InOrderOf returns l in the order that its kinds have in other; the rest follows.
func (l List) InOrderOf(other List) List {
	out := slices.Clone(l)
	place := func(r mesos.Resource) int {
		if i := slices.IndexFunc(other, func(o mesos.Resource) bool { return o.Name == r.Name }); i >= 0 {
			return i
		}
		return len(other)
	}
	slices.SortStableFunc(out, func(a, b mesos.Resource) int { return place(a) - place(b) })
	return out
}
