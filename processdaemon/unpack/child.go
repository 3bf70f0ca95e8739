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
	last, err := child(out)
	if last.Done = err == nil; err != nil {
		last = line{Error: err.Error(), Hostile: errors.Is(err, ErrHostile)}
	}
	if out.Encode(last) != nil || err != nil {
		return 1
	}
	return 0
}

// child returns its last word.
func child(out *json.Encoder) (line, error) {
	var j Job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return line{}, fmt.Errorf("%s is for the process daemon only: %w", Command, err)
	}
	if j.Read != nil {
		return j.read(out)
	}
	if len(j.RawName) > 0 {
		j.Name = string(j.RawName)
	}
	from := os.NewFile(fromFile, "from")
	how, missing, err := confine(&j)
	if err != nil {
		return line{}, fmt.Errorf("the process that unpacks cannot be confined: %w", err)
	}
	if err := out.Encode(line{Confined: how, Missing: missing}); err != nil {
		return line{}, err
	}
	root, err := os.OpenRoot(".")
	if err != nil {
		return line{}, err
	}
	defer root.Close()
	if err := failpoint.Inject("unpack/begin"); err != nil {
		return line{}, err
	}
	// Whoever reads the lines shows them to people and wants to know that this lives.
	const every = 200 * time.Millisecond
	var told time.Time
	var lost error
	var last line
	err = content(context.Background(), from, root, &j, func(p Progress) {
		last.Progress = p
		if now := time.Now(); now.Sub(told) > every {
			told = now
			lost = errors.Join(lost, out.Encode(last))
		}
	})
	if err == nil {
		err = failpoint.Inject("unpack/end")
	}
	return last, errors.Join(err, lost)
}
