package api

import "strings"

// Nearest returns the candidate that was most likely meant by word, or "" when
// none comes close: at most one slip for each three letters, letters' case aside.
// The beginning of a candidate, three letters or more, counts as one slip.
func Nearest(word string, candidates []string) string {
	// Long input cannot be a slip, and comparing it would take long.
	const longest, wholeBeginning = 256, 3
	if len(word) > longest {
		return ""
	}
	low := strings.ToLower(word)
	best, bestDistance := "", max(1, (len(low)+1)/3)+1
	for _, c := range candidates {
		lowC := strings.ToLower(c)
		d := distance([]rune(low), []rune(lowC))
		if len(low) >= wholeBeginning && strings.HasPrefix(lowC, low) {
			d = min(d, 1)
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// didYouMean renders the nearest candidate as the tail of a message.
func didYouMean(s string, candidates []string) string {
	if c := Nearest(s, candidates); c != "" {
		return "; did you mean " + c + "?"
	}
	return ""
}

// distance is the number of letters to insert, delete, replace or swap with
// the next to get from a to b.
func distance(a, b []rune) int {
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
