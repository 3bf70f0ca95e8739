package api

import (
	"encoding/json"
	"strings"
)

// The grammars of names are written out by hand: compiled as regular
// expressions they would cost every executor 0.8 MB and a millisecond at its start.

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// isWord tells whether s is 1 to most letters, digits and characters of extra,
// the first and the last a letter or digit or one of ends.
func isWord(s, extra, ends string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		allowed := extra
		if i == 0 || i == len(s)-1 {
			allowed = ends
		}
		if !alphanumeric(s[i]) && strings.IndexByte(allowed, s[i]) < 0 {
			return false
		}
	}
	return true
}

// isLabel tells whether s is a DNS label.
func isLabel(s string) bool { return isWord(s, "-", "", 63) }

// isName is wider than a DNS label: names with '_' have always been in use for
// ports, and keys of labels hold dots.
func isName(s string) bool { return isWord(s, "-_.", "", 63) }

// isDataKey is what can name a file and the source of a variable.
func isDataKey(s string) bool {
	return isWord(s, "-_.", "-_.", 253) && s != "." && s != ".."
}

// isImage is loose on purpose: the engine knows the grammar. It excludes what
// could be taken for an option or hides in a log.
func isImage(s string) bool {
	const extra = "-._/:@+"
	return isWord(s, extra, extra, 512) && alphanumeric(s[0])
}

// isDomain tells whether s is a domain name, perhaps with "*." in front.
func isDomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(s, "*."), ".") {
		if !isWord(label, "-_", "_", 63) {
			return false
		}
	}
	return true
}

// isJSONNumber tells whether s is a number in JSON's grammar, nothing around it.
func isJSONNumber(s string) bool {
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return false
	}
	last := s[len(s)-1]
	return last >= '0' && last <= '9' && json.Valid([]byte(s))
}
