package api

import (
	"fmt"
	"strings"
)

// ExpandCommand is Expand for a command line, which is split at blanks or given
// to a shell afterwards. A value in which the shell would find anything but plain
// characters is quoted, in the way that its place in the line asks for: bare,
// between quotes of either kind, or in a $(...) there. So a value is one word,
// or a part of one, whatever it holds. The error says where that cannot be.
func (v *Vars) ExpandCommand(line string) (expanded string, unknown []string, err error) {
	if !strings.Contains(line, "${") {
		return line, nil, nil
	}
	q := &quoting{}
	if replaceInto(q.put, line, v.ours, func(name string) string {
		value, ok := v.values[name]
		if !ok {
			unknown = append(unknown, name)
			return "${" + name + "}"
		}
		q.value = true
		quoted, reason := q.quote(value)
		if reason != "" && err == nil {
			err = fmt.Errorf("${%s} holds characters that mean something to a shell, and stands %s", name, reason)
		}
		return quoted
	}) {
		unknown = append(unknown, "${")
	}
	return q.line.String(), unknown, err
}

// quoting follows a command line as sh(1) reads it, as far as quotes go.
type quoting struct {
	line strings.Builder
	// open are the quotes and parentheses that are open, the innermost last.
	open []byte
	// escaped is set after a backslash; last is the byte before.
	escaped bool
	last    byte
	// value tells that what is written next is a quoted value, which opens nothing.
	value bool
}

// put takes the next piece of the line.
func (q *quoting) put(s string) {
	q.line.WriteString(s)
	if q.value {
		q.value, q.escaped, q.last = false, false, 'x'
		return
	}
	for i := range len(s) {
		q.step(s[i])
	}
}

func (q *quoting) inside() byte {
	if len(q.open) == 0 {
		return 0
	}
	return q.open[len(q.open)-1]
}

func (q *quoting) step(c byte) {
	in, last := q.inside(), q.last
	q.last = c
	push := func() { q.open = append(q.open, c) }
	pop := func() { q.open = q.open[:len(q.open)-1] }
	switch {
	case q.escaped:
		q.escaped = false
	case in == '\'':
		if c == '\'' {
			pop()
		}
	case c == '\\':
		q.escaped = true
	case c == '\'' && in != '"':
		push()
	case c == '"', c == '`':
		if in == c {
			pop()
		} else {
			push()
		}
	case c == '(' && (last == '$' || in == '('):
		push()
	case c == ')' && in == '(':
		pop()
	}
}

// quote renders a value for the place that the line has come to; reason says
// why that cannot be done.
func (q *quoting) quote(value string) (quoted, reason string) {
	if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@%+,=") == "" {
		return value, ""
	}
	switch in := q.inside(); {
	case q.escaped:
		return value, "after a backslash; remove that"
	case in == '`':
		return value, "between backquotes; write $(...) instead"
	case in == '\'':
		return strings.ReplaceAll(value, "'", `'\''`), ""
	case in == '"':
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value), ""
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'", ""
}
