// Package exit defines the exit codes of the tandem command and how an error
// carries one. It is for the command's packages only: libraries return errors
// that say what happened, never what a process should exit with.
package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Code is an exit code of the tandem command; scripts rely on them, so they never change their meaning.
type Code int

// The exit codes, see `tandem help exit-codes`.
const (
	OK          Code = iota // all done
	Failure                 // something went wrong that no other code names
	Usage                   // wrong usage, or input that cannot be accepted
	Unreachable             // the scheduler cannot be reached
	NotFound                // the named thing does not exist
	TimedOut                // --timeout passed before the goal was reached
	Refused                 // refused: in conflict with what is there, or already running
)

var codeTexts = []string{
	OK:          "all done",
	Failure:     "something failed that no other code names",
	Usage:       "wrong usage, or bad input: nothing was changed",
	Unreachable: "the scheduler cannot be reached",
	NotFound:    "the named object, kind or namespace does not exist",
	TimedOut:    "--timeout passed before the goal was reached",
	Refused:     "refused: in conflict with what is there, or with what is already running",
}

// Help is the text of `tandem help exit-codes`.
func Help() string {
	var b strings.Builder
	b.WriteString("Exit codes of every tandem command:\n\n")
	for code, text := range codeTexts {
		fmt.Fprintf(&b, "  %d  %s\n", code, text)
	}
	b.WriteString("\nA command that gets several things to do and fails at more than one exits with the code of the first failure.\n")
	return b.String()
}

// coded is an error that knows its exit code.
type coded struct {
	code Code
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// With gives err an exit code; nil stays nil.
func With(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code: code, err: err}
}

// Silent is an error without a text, for what has been said already; nil for OK.
func Silent(code Code) error {
	if code == OK {
		return nil
	}
	return &coded{code: code, err: errSilent}
}

var errSilent = errors.New("")

// IsSilent tells whether nothing is left to be said about err.
func IsSilent(err error) bool { return errors.Is(err, errSilent) }

// Errorf is fmt.Errorf with an exit code.
func Errorf(code Code, format string, args ...any) error {
	return With(code, fmt.Errorf(format, args...))
}

// Of tells the exit code for what a command returned.
func Of(err error) Code {
	var c *coded
	switch {
	case err == nil:
		return OK
	case errors.As(err, &c):
		return c.code
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	}
	return Failure
}
