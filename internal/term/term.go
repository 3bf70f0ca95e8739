// Package term writes what people read: styled text, tables and progress.
//
// It is for the commands of the tandem binary. Styles and single-line updates
// appear on a terminal only; a pipe or a file gets plain lines that never change
// with the window's size, so that scripts may rely on them. The package must
// never write an escape sequence that came with the data.
package term

import (
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Output is a stream together with what is known about who reads it.
type Output struct {
	w        io.Writer
	terminal bool
	colour   bool
	width    func() int
}

// New wraps w. It is taken for a terminal when it is an *os.File that is one
// and TERM is not "dumb"; styles are then used unless NO_COLOR is set to
// anything but the empty string (no-color.org).
func New(w io.Writer, getenv func(string) string) *Output {
	o := &Output{w: w, width: func() int { return 0 }}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || getenv("TERM") == "dumb" {
		return o
	}
	o.terminal = true
	o.colour = getenv("NO_COLOR") == ""
	o.width = func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return w
	}
	return o
}

// NewTerminal is an Output that behaves as a terminal of the given width
// whatever w is; tests use it.
func NewTerminal(w io.Writer, width int, colour bool) *Output {
	return &Output{w: w, terminal: true, colour: colour, width: func() int { return width }}
}

// Write passes p on unchanged.
func (o *Output) Write(p []byte) (int, error) { return o.w.Write(p) }

// Terminal tells whether people watch the stream.
func (o *Output) Terminal() bool { return o.terminal }

// Width is the number of columns of the terminal, 0 when there is no limit.
func (o *Output) Width() int { return o.width() }

// Style says what a piece of text means to its reader; how that looks is this package's business.
type Style int

// The styles in use.
const (
	Plain  Style = iota
	Good         // as it should be
	Busy         // on its way
	Bad          // wrong, someone has to look
	Dim          // of less interest
	Strong       // headings
)

var sgr = map[Style]string{
	Good:   "\x1b[32m",
	Busy:   "\x1b[33m",
	Bad:    "\x1b[31m",
	Dim:    "\x1b[2m",
	Strong: "\x1b[1m",
}

// Style returns text in a style, or as it is where styles are not shown.
func (o *Output) Style(s Style, text string) string {
	if code := sgr[s]; o.colour && code != "" && text != "" {
		return code + text + "\x1b[0m"
	}
	return text
}

// Clean makes text from elsewhere safe to show in one line: white space
// becomes a single blank and other control characters vanish, because a task's
// output could otherwise steer the reader's terminal.
func Clean(text string) string {
	safe := strings.IndexFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) < 0
	if safe && !strings.Contains(text, "  ") {
		return strings.TrimSpace(text)
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
