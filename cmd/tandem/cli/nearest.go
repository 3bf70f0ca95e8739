package cli

import "strings"

// nearest returns the candidate that was most likely meant by word, or "" when none is near.
func nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	best, bestDistance := "", len(word)/2+1
	if bestDistance > 3 {
		bestDistance = 3
	}
	for _, c := range candidates {
		d := distance(word, strings.ToLower(c))
		if len(word) >= 3 && strings.HasPrefix(strings.ToLower(c), word) {
			d = min(d, 1)
		}
		if d < bestDistance || d == bestDistance && best == "" {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour to get from a to b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, next := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		next[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(y)]
}
