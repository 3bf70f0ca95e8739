package agentlink

import (
	"fmt"
	"log/slog"
)

// Token is an executor's bearer token (RFC 6750). It does not show itself: in
// formatted text, logs and JSON there is "[token]" in its place.
type Token string

// hidden stands for a token in texts.
const hidden = "[token]"

// Valid reports whether the token can go into a header; one with blanks, line
// ends or other control characters cannot.
func (t Token) Valid() bool {
	for i := range len(t) {
		if t[i] <= ' ' || t[i] > '~' {
			return false
		}
	}
	return true
}

// Format writes "[token]", whatever the verb, or nothing for an empty token.
func (t Token) Format(f fmt.State, _ rune) {
	if t != "" {
		_, _ = f.Write([]byte(hidden)) // fmt keeps what is written in memory
	}
}

// LogValue is what a log shows.
func (t Token) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(t)) }

// MarshalText is what JSON shows.
func (t Token) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(t)), nil }
