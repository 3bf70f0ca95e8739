package scenario

import (
	"errors"
	"fmt"
	"strings"
)

// split cuts a line into words. Blanks separate them; double quotes keep blanks
// and # together, with \" and \\ inside; # begins a comment.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quoted := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quoted && c == '\\':
			if i++; i == len(line) || line[i] != '"' && line[i] != '\\' {
				return nil, errors.New(`a backslash inside quotes must come before " or \`)
			}
			word.WriteByte(line[i])
		case c == '"':
			quoted, inWord = !quoted, true
		case quoted:
			word.WriteByte(c)
		case c == ' ' || c == '\t' || c == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case c == '#' && !inWord:
			return words, nil
		case c < ' ' || c == 0x7f:
			return nil, fmt.Errorf("the control character %q is not allowed", c)
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quoted {
		return nil, errors.New(`a " has no end`)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// nearest is the word of a list that differs least from a wrong one, for
// "did you mean"; empty when none is near.
func nearest(wrong string, list []string) string {
	best, least := "", len(wrong)/2+1
	for _, w := range list {
		if d := distance(wrong, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace.
func distance(a, b string) int {
	const enough = 40
	if len(a) > enough || len(b) > enough {
		return enough
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func unknown(what, word string, list []string) error {
	if near := nearest(word, list); near != "" {
		return fmt.Errorf("%s %q is unknown; did you mean %q?", what, word, near)
	}
	return fmt.Errorf("%s %q is unknown; use one of %s", what, word, strings.Join(list, ", "))
}
