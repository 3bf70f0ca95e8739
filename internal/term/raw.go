package term

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// IsTerminal tells whether a stream is a terminal, and returns it as a file.
func IsTerminal(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// Raw hands every key of a terminal on as it is typed, Ctrl-C too, until restore
// is called, which may be done more than once and by anybody.
func Raw(f *os.File) (restore func(), err error) {
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	return sync.OnceFunc(func() { _ = term.Restore(int(f.Fd()), before) }), nil // nothing else could be done
}

// Size is the size of a terminal in characters; 0, 0 when it is not known.
func Size(f *os.File) (width, height uint16) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return uint16(w), uint16(h)
}

// FollowSize tells of a terminal's new sizes until stop is called.
func FollowSize(f *os.File, tell func(width, height uint16)) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-changed:
				if w, h := Size(f); w > 0 {
					tell(w, h)
				}
			case <-end:
				return
			}
		}
	}()
	return func() { signal.Stop(changed); close(end); <-done }
}
