package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// printer writes the demo's story: numbered steps, commands as a user would type them, outcomes.
type printer struct {
	w      io.Writer
	colour bool
	steps  int
	began  time.Time
}

func newPrinter(f *os.File) *printer {
	return &printer{w: f, colour: term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "", began: time.Now()}
}

func (p *printer) paint(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *printer) step(format string, args ...any) {
	p.steps++
	title := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.w, "\n%s\n", p.paint("1", fmt.Sprintf("%2d. %s  (%.0f s)", p.steps, title, time.Since(p.began).Seconds())))
}

func (p *printer) command(args ...string) {
	fmt.Fprintf(p.w, "    %s\n", p.paint("36", "$ tandem "+strings.Join(args, " ")))
}

func (p *printer) block(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Fprintf(p.w, "    %s\n", strings.TrimRight(line, "\n"))
	}
}

func (p *printer) note(format string, args ...any) {
	fmt.Fprintf(p.w, "    %s\n", fmt.Sprintf(format, args...))
}

func (p *printer) good(format string, args ...any) {
	fmt.Fprintf(p.w, "    %s %s\n", p.paint("32", "ok"), fmt.Sprintf(format, args...))
}

func (p *printer) bad(format string, args ...any) {
	fmt.Fprintf(p.w, "    %s %s\n", p.paint("31", "NOT AS EXPECTED"), fmt.Sprintf(format, args...))
}
