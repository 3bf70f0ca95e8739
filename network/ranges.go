package network

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Range is a span of ports, both ends included, as a Mesos ports resource has them.
type Range struct {
	Begin, End int
}

// Ranges is a set of ports. Its methods expect what Normalize returns: sorted,
// without overlaps, without empty spans.
type Ranges []Range

// Normalize returns the same set, sorted and merged.
func (r Ranges) Normalize() Ranges {
	sorted := slices.Clone(r)
	sorted = slices.DeleteFunc(sorted, func(x Range) bool { return x.End < x.Begin })
	slices.SortFunc(sorted, func(a, b Range) int { return cmp.Compare(a.Begin, b.Begin) })
	out := sorted[:0]
	for _, x := range sorted {
		if n := len(out); n > 0 && x.Begin <= out[n-1].End+1 {
			out[n-1].End = max(out[n-1].End, x.End)
			continue
		}
		out = append(out, x)
	}
	return out
}

// Ports makes a normalized set of single ports.
func Ports(ports ...int) Ranges {
	r := make(Ranges, 0, len(ports))
	for _, p := range ports {
		r = append(r, Range{p, p})
	}
	return r.Normalize()
}

// Len is the number of ports in the set.
func (r Ranges) Len() int {
	n := 0
	for _, x := range r {
		n += x.End - x.Begin + 1
	}
	return n
}

// Contains reports whether the port is in the set.
func (r Ranges) Contains(port int) bool {
	for _, x := range r {
		if x.Begin <= port && port <= x.End {
			return true
		}
	}
	return false
}

// Nth returns the i-th port in ascending order, from 0; it panics beyond Len.
func (r Ranges) Nth(i int) int {
	for _, x := range r {
		size := x.End - x.Begin + 1
		if i < size {
			return x.Begin + i
		}
		i -= size
	}
	panic("network: Nth beyond the end of the ranges")
}

// Without returns the set without one port.
func (r Ranges) Without(port int) Ranges {
	out := make(Ranges, 0, len(r)+1)
	for _, x := range r {
		if port < x.Begin || port > x.End {
			out = append(out, x)
			continue
		}
		if x.Begin < port {
			out = append(out, Range{x.Begin, port - 1})
		}
		if port < x.End {
			out = append(out, Range{port + 1, x.End})
		}
	}
	return out
}

// String renders the set as "31000-31999,33000".
func (r Ranges) String() string {
	parts := make([]string, 0, len(r))
	for _, x := range r {
		s := strconv.Itoa(x.Begin)
		if x.End != x.Begin {
			s += "-" + strconv.Itoa(x.End)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ",")
}
