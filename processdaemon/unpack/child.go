package unpack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"tandem/internal/failpoint"
)

// Command is the argument of a program that is to unpack.
const Command = "unpack"

// Asked tells whether this program was started by a Runner. A program that runs a
// process daemon asks it before everything else, and hands over to Main.
func Asked() bool {
	handsOver.Store(true)
	return len(os.Args) == 2 && os.Args[1] == Command
}

// handsOver tells that this program asks. One that does not would do, as a child,
// whatever it does when it is started.
var handsOver atomic.Bool

// The descriptors that the daemon passes.
const (
	fromFile = 3
	toFile   = 4
)

// Main is a process that unpacks. It returns the exit code.
func Main() int {
	// All of it happens on this thread: where the confinement cannot be extended to
	// all threads, it holds for this one.
	runtime.LockOSThread()
	debug.SetGCPercent(50)
	// A file that grows too large is an error, not the end.
	signal.Ignore(syscall.SIGXFSZ)
	out := json.NewEncoder(os.Stdout)
	err := child(out)
	last := line{Done: err == nil}
	if err != nil {
		last.Error, last.Hostile = err.Error(), errors.Is(err, ErrHostile)
	}
	if out.Encode(last) != nil || err != nil {
		return 1
	}
	return 0
}

func child(out *json.Encoder) error {
	var j Job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return fmt.Errorf("%s is for the process daemon only: %w", Command, err)
	}
	from := os.NewFile(fromFile, "from")
	how, missing, err := confine(&j)
	if err != nil {
		return fmt.Errorf("the process that unpacks cannot be confined: %w", err)
	}
	if err := out.Encode(line{Confined: how, Missing: missing}); err != nil {
		return err
	}
	root, err := os.OpenRoot(".")
	if err != nil {
		return err
	}
	defer root.Close()
	if err := failpoint.Inject("unpack/begin"); err != nil {
		return err
	}
	// Whoever reads the lines shows them to people and wants to know that this lives.
	const every = 200 * time.Millisecond
	var told time.Time
	var lost error
	err = content(context.Background(), from, root, &j, func(n int64) {
		if now := time.Now(); now.Sub(told) > every {
			told = now
			lost = errors.Join(lost, out.Encode(line{Packed: n}))
		}
	})
	if err == nil {
		err = failpoint.Inject("unpack/end")
	}
	return errors.Join(err, lost)
}
