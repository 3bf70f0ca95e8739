package resource

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// FormatRanges writes ranges as "[1-5, 8-9]".
func FormatRanges(ranges []mesos.Value_Range) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, r := range ranges {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatUint(r.Begin, 10) + "-" + strconv.FormatUint(r.End, 10))
	}
	b.WriteByte(']')
	return b.String()
}

// mergeRanges returns the same numbers as the fewest sorted ranges. A range
// that ends before it begins holds none.
func mergeRanges(ranges []mesos.Value_Range) []mesos.Value_Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b mesos.Value_Range) int { return cmp.Compare(a.Begin, b.Begin) })
	var out []mesos.Value_Range
	for _, r := range sorted {
		if r.End < r.Begin {
			continue
		}
		if n := len(out); n > 0 && (out[n-1].End == math.MaxUint64 || r.Begin <= out[n-1].End+1) {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}

// subRanges returns the numbers of a that are not in b.
func subRanges(a, b []mesos.Value_Range) []mesos.Value_Range {
	out := mergeRanges(a)
	for _, cut := range mergeRanges(b) {
		var left []mesos.Value_Range
		for _, r := range out {
			if cut.End < r.Begin || cut.Begin > r.End {
				left = append(left, r)
				continue
			}
			if r.Begin < cut.Begin {
				left = append(left, mesos.Value_Range{Begin: r.Begin, End: cut.Begin - 1})
			}
			if r.End > cut.End {
				left = append(left, mesos.Value_Range{Begin: cut.End + 1, End: r.End})
			}
		}
		out = left
	}
	return out
}
