package term

import (
	"fmt"
	"sync"
	"time"
)

// Progress shows the newest of a series of short texts. On a terminal it is one
// line that is written over and over; elsewhere each new text is a line of its
// own. The zero value is not usable; a nil Progress shows nothing.
type Progress struct {
	out   *Output
	start time.Time
	now   func() time.Time

	mu    sync.Mutex
	text  string
	shown bool
	done  bool
	tick  int

	stop chan struct{}
	idle sync.WaitGroup
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// NewProgress starts a display; Done must be called, also after an error.
func NewProgress(o *Output) *Progress {
	p := &Progress{out: o, start: time.Now(), now: time.Now, stop: make(chan struct{})}
	if o.Terminal() {
		p.idle.Add(1)
		go p.animate()
	}
	return p
}

// Update shows text in place of the one before.
func (p *Progress) Update(format string, args ...any) {
	if p == nil {
		return
	}
	text := Clean(fmt.Sprintf(format, args...))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || text == p.text {
		return
	}
	p.text = text
	if p.out.Terminal() {
		p.draw()
		return
	}
	fmt.Fprintln(p.out, text)
}

// Line writes a line that stays, above the display.
func (p *Progress) Line(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
	if p.text != "" && !p.done && p.out.Terminal() {
		p.draw()
	}
}

// Done ends the display and removes it from a terminal.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	p.mu.Lock()
	if p.done {
		p.mu.Unlock()
		return
	}
	p.done = true
	p.clear()
	p.mu.Unlock()
	close(p.stop)
	p.idle.Wait()
}

// Elapsed is the time since the display was started.
func (p *Progress) Elapsed() time.Duration { return p.now().Sub(p.start) }

func (p *Progress) clear() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

func (p *Progress) draw() {
	line := fmt.Sprintf("%c %s (%ds)", spinner[p.tick%len(spinner)], p.text, int(p.Elapsed().Seconds()))
	if w := p.out.Width(); w > 0 {
		// A line as wide as the window would wrap and could not be cleared.
		line = shorten(line, w-1)
	}
	fmt.Fprint(p.out, "\r\x1b[K"+line)
	p.shown = true
}

func (p *Progress) animate() {
	defer p.idle.Done()
	t := time.NewTicker(120 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
		}
		p.mu.Lock()
		if !p.done && p.text != "" {
			p.tick++
			p.draw()
		}
		p.mu.Unlock()
	}
}
