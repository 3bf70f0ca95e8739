package api

import "strings"

// nearest returns the candidate that resembles s most, or "" when none comes
// close: at most one slip for each three letters, letters' case aside.
func nearest(s string, candidates []string) string {
	// Long input cannot be a slip, and comparing it would take long.
	if len(s) > 64 {
		return ""
	}
	low := strings.ToLower(s)
	best, bestDistance := "", max(1, len(s)/3)+1
	for _, c := range candidates {
		d := distance(low, strings.ToLower(c))
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// didYouMean renders the nearest candidate as the tail of a message.
func didYouMean(s string, candidates []string) string {
	if c := nearest(s, candidates); c != "" {
		return "; did you mean " + c + "?"
	}
	return ""
}

// distance is the number of letters to insert, delete, replace or swap with
// the next to get from a to b.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
