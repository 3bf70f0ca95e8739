package resource

// Quantities are amounts of scalar resources by name, in thousandths. They
// are cheaper than a List where only amounts matter; Add and Sub change them.
type Quantities map[string]int64

// QuantitiesOf sums the scalars of a List, whatever they are reserved for.
func QuantitiesOf(l List) Quantities {
	q := Quantities{}
	q.Add(l)
	return q
}

// Add adds the scalars of a List.
func (q Quantities) Add(l List) {
	for _, r := range l {
		if r.GetScalar() != nil {
			q[r.Name] += fixed(r.Scalar.Value)
		}
	}
}

// Sub takes the scalars of a List away. It does not stop at nothing: what is
// taken was added before.
func (q Quantities) Sub(l List) {
	for _, r := range l {
		if r.GetScalar() == nil {
			continue
		}
		if q[r.Name] -= fixed(r.Scalar.Value); q[r.Name] == 0 {
			delete(q, r.Name)
		}
	}
}

// DominantShare is the largest part that q is of any amount in total: the share
// that Dominant Resource Fairness compares.
func (q Quantities) DominantShare(total Quantities) float64 {
	share := 0.0
	for name, amount := range q {
		if all := total[name]; all > 0 {
			share = max(share, float64(amount)/float64(all))
		}
	}
	return share
}
