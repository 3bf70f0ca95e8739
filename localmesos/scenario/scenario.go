// Package scenario runs scripted scenarios: text files, a step in each line, that
// start an embedded Mesos cluster, launch tasks with a small built-in framework,
// break things on purpose and say what must come of it. README.md describes the
// language.
//
// It is for tests and for people who want to see, or to show, what happens. A
// scenario never waits for a time to pass, only for something to be true, and
// nothing that it started may outlive it.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Scenario is a file that was read and found to make sense.
type Scenario struct {
	// File is its name, as it was given.
	File  string
	steps []step
}

// step is one line.
type step struct {
	line int
	text string
	do   action
}

// action is what a line does. It returns an error that wraps ErrTimeout when it waited in vain.
type action interface {
	run(ctx context.Context, r *runner) error
}

// Steps is the number of steps.
func (s *Scenario) Steps() int { return len(s.steps) }

// ErrTimeout is wrapped by the errors of steps that waited in vain.
var ErrTimeout = errors.New("timed out")

// SyntaxError is all that is wrong with a file, in the order of its lines.
type SyntaxError struct {
	File  string
	Lines []LineError
}

// LineError is what is wrong with a line; the first is 1.
type LineError struct {
	Line int
	Text string
}

// Error is a line "file:line: what" for each error.
func (e *SyntaxError) Error() string {
	lines := make([]string, len(e.Lines))
	for i, l := range e.Lines {
		lines[i] = fmt.Sprintf("%s:%d: %s", e.File, l.Line, l.Text)
	}
	return strings.Join(lines, "\n")
}

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// Load reads and parses a file. The error is a *SyntaxError when it is the file's.
func Load(file string) (*Scenario, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if info.Size() > maxFile {
		return nil, &SyntaxError{File: file, Lines: []LineError{{1, fmt.Sprintf("the file is larger than %d bytes", maxFile)}}}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return Parse(file, string(b))
}
