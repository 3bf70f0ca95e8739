package api

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// FieldError says what is wrong with one field of an artifact or message.
type FieldError struct {
	// Path leads to the field as a reader would write it, for example
	// spec.template.spec.containers[0].ports[1].hostPort. It is empty when
	// the document as a whole is meant.
	Path string `json:"path"`
	// Value is the offending value, rendered; empty when it is absent or secret.
	Value string `json:"value,omitempty"`
	// Message starts in lower case, says what is wrong and names the remedy.
	Message string `json:"message"`

	// Source is the file that holds the field; empty when it is not known.
	Source string `json:"source,omitempty"`
	// Document is the document's place in its source, from 1; 0 when the
	// source holds only one or it is not known.
	Document int `json:"document,omitempty"`
	// Line and Column are the place in the source, from 1; 0 when it is not known.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

// Where renders the place as "file:line:column (document n)", leaving out what
// is not known; empty when nothing is.
func (e FieldError) Where() string {
	where := e.Source
	if e.Line > 0 {
		if where == "" {
			where = "line "
		} else {
			where += ":"
		}
		where += strconv.Itoa(e.Line)
		if e.Column > 0 {
			where += ":" + strconv.Itoa(e.Column)
		}
	}
	if e.Document > 0 {
		where = strings.TrimSpace(where + " (document " + strconv.Itoa(e.Document) + ")")
	}
	return where
}

// Error renders "place: path: value: message", leaving out what is empty.
func (e FieldError) Error() string {
	parts := make([]string, 0, 4)
	if where := e.Where(); where != "" {
		parts = append(parts, where)
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	if e.Value != "" {
		parts = append(parts, fmt.Sprintf("%q", e.Value))
	}
	return strings.Join(append(parts, e.Message), ": ")
}

// Errors are all the errors of one document, so that a user mends them in one go.
type Errors []FieldError

// Error joins all errors, one a line, in the order of their paths.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Add appends an error; value may be nil where showing it would not help or must not happen.
func (e *Errors) Add(path string, value any, format string, args ...any) {
	v := ""
	if value != nil {
		v = fmt.Sprint(value)
	}
	*e = append(*e, FieldError{Path: path, Value: v, Message: fmt.Sprintf(format, args...)})
}

// Sorted returns the errors ordered by path, or nil when there are none, so
// that the result can be returned as an error without a typed nil.
func (e Errors) Sorted() error {
	if len(e) == 0 {
		return nil
	}
	sort.SliceStable(e, func(i, j int) bool { return e[i].Path < e[j].Path })
	return e
}
