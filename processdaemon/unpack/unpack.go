// Package unpack writes the content of an archive that nobody vouches for into a
// directory, in a process of its own: as the user that the content is for, below
// that directory alone, without network, with bounded memory, time and sizes. In the same
// way it reads files of the agent with the rights of a user (Read). It
// holds both sides, the process daemon's (Run, Read) and the child's (Main).
//
// The child gets the archive and the directory as open files and everything else
// on its standard input, so that nothing of it can be seen from outside. It must
// never run with the daemon's rights once it has looked at the archive.
package unpack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"tandem/internal/archive"
	"tandem/internal/failpoint"
)

// ErrHostile is wrapped by the refusals of what no honest archive holds.
var ErrHostile = archive.ErrHostile

// Job says what is to be unpacked, as whom, and how much of it there may be.
type Job struct {
	// Name is the file's name. By its end it is a tar or zip archive, which is
	// unpacked, or a plain file, which is put there under this name.
	Name string `json:"name"`
	// RawName is Name where that is not UTF-8, which JSON cannot hold; Run sets it.
	RawName []byte `json:"rawName,omitempty"`
	// Mode is that of a plain file; 0 is 0755.
	Mode uint32 `json:"mode,omitempty"`
	// MaxBytes, MaxFiles and MaxRatio bound the content, see archive.Options.
	MaxBytes int64 `json:"maxBytes"`
	MaxFiles int   `json:"maxFiles"`
	MaxRatio int64 `json:"maxRatio,omitempty"`
	// As is whom to become; nil is to stay who the daemon is.
	As *syscall.Credential `json:"as,omitempty"`
	// Jail asks for a root directory of its own and no capabilities, for which the daemon must be root.
	Jail bool `json:"jail,omitempty"`
	// Read is what is to be read instead, see Runner.Read.
	Read *reading `json:"read,omitempty"`
}

func (j *Job) mode() fs.FileMode {
	if j.Mode == 0 {
		// Whoever fetches a single file means to run it, or does not mind.
		return 0o755
	}
	return fs.FileMode(j.Mode)
}

// Runner starts the children.
type Runner struct {
	// Program is run with the argument Command; empty is the caller's own.
	Program string
	// Log is told when this machine cannot confine a child wholly; nil is slog.Default.
	Log *slog.Logger
	// Track is called before a child is started. It returns what to call with the
	// pid once it runs, 0 when it does not, and that what to call after its end. Nil: nobody cares.
	Track func() func(pid int) func()
	// Points arms failpoints in the children; tests only.
	Points string

	told sync.Once
}

// patience is how long a child may do nothing, and closeTime how long its output
// may stay open after its end.
const (
	patience  = time.Minute
	closeTime = 5 * time.Second
)

// Progress is how far an archive is unpacked.
type Progress struct {
	// Packed are the bytes of the archive that were read so far, Unpacked those of the
	// files that came out.
	Packed   int64 `json:"packed,omitempty"`
	Unpacked int64 `json:"unpacked,omitempty"`
	// Entries are files, directories and links.
	Entries int `json:"entries,omitempty"`
}

// line is what the child writes: first Confined, then Packed again and again, and last Done or Error.
type line struct {
	Confined string `json:"confined,omitempty"`
	Missing  string `json:"missing,omitempty"`
	Progress
	// State and Copied are of a file that is read.
	State   *FileState `json:"state,omitempty"`
	Copied  bool       `json:"copied,omitempty"`
	Done    bool       `json:"done,omitempty"`
	Error   string     `json:"error,omitempty"`
	Hostile bool       `json:"hostile,omitempty"`
}

// Run unpacks from into the directory to, which must be empty and belong to whom
// the job names. progress is called now and then; it may be nil. A refusal wraps ErrHostile. After an error the directory holds
// anything. When the caller's program is killed, so is the child.
func (r *Runner) Run(ctx context.Context, j Job, from, to *os.File, progress func(Progress)) error {
	said := func(l line) {
		if progress != nil {
			progress(l.Progress)
		}
	}
	if !utf8.ValidString(j.Name) {
		j.RawName = []byte(j.Name)
	}
	j.Jail = os.Geteuid() == 0
	_, err := r.run(ctx, &j, from, to, said, j.Jail)
	var start *startError
	if j.Jail && errors.As(err, &start) {
		// No namespace to be had: in a container, say.
		r.missing("no network of its own: " + start.Error())
		_, err = r.run(ctx, &j, from, to, said, false)
	}
	return err
}

func (r *Runner) missing(what string) {
	r.told.Do(func() {
		log := r.Log
		if log == nil {
			log = slog.Default()
		}
		log.Warn("archives are unpacked with less confinement than this program knows", "missing", what)
	})
}

// startError says that there is no child.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

func (r *Runner) run(ctx context.Context, j *Job, from, to *os.File, said func(line), alone bool) (last line, err error) {
	input, err := json.Marshal(j)
	if err != nil {
		return line{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	what := "unpacking"
	if j.Read != nil {
		what = "reading"
	}
	idle := time.AfterFunc(patience, func() { cancel(fmt.Errorf("%s made no progress for %v", what, patience)) })
	defer idle.Stop()

	program := r.Program
	if program == "" {
		if !handsOver.Load() {
			return line{}, errors.New("this program cannot unpack: its main function does not call unpack.Asked and unpack.Main")
		}
		program = "/proc/self/exe"
	}
	cmd := exec.CommandContext(ctx, program, Command)
	cmd.Args[0] = "tandem-processd"
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", failpoint.Environ(r.Points), closeTime
	stderr := &tail{}
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(input), stderr, []*os.File{from, to}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if alone {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return line{}, err
	}
	defer pr.Close()
	cmd.Stdout = pw
	// The child is killed when the thread that forked it ends (prctl(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	forked := func(int) func() { return func() {} }
	if r.Track != nil {
		forked = r.Track()
	}
	err = cmd.Start()
	pw.Close()
	if err != nil {
		forked(0)
		if ctx.Err() != nil {
			return line{}, context.Cause(ctx)
		}
		return line{}, &startError{fmt.Errorf("start a process that unpacks: %w", err)}
	}
	defer forked(cmd.Process.Pid)()
	last, told := r.follow(pr, func(l line) {
		idle.Reset(patience)
		said(l)
	})
	waitErr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return line{}, context.Cause(ctx)
	case told && last.Done && waitErr == nil:
		return last, nil
	case told && last.Hostile:
		return line{}, fmt.Errorf("%w%s", ErrHostile, strings.TrimPrefix(last.Error, ErrHostile.Error()))
	case told && last.Error != "":
		return line{}, errors.New(last.Error)
	}
	return line{}, died(waitErr, stderr.String())
}

// follow reads what the child says until it is silent for ever.
func (r *Runner) follow(out io.Reader, alive func(line)) (last line, told bool) {
	s := bufio.NewScanner(out)
	for s.Scan() {
		var l line
		if json.Unmarshal(s.Bytes(), &l) != nil {
			return line{}, false
		}
		if l.Missing != "" {
			r.missing(l.Missing)
		}
		alive(l)
		last, told = l, true
	}
	return last, told && s.Err() == nil
}

// died explains an end without a last word.
func died(err error, stderr string) error {
	// The words of the runtime, the last with the race detector.
	for _, words := range []string{"out of memory", "cannot allocate memory", "address space"} {
		if !strings.Contains(stderr, words) {
			continue
		}
		return fmt.Errorf("unpacking it needs more memory than the %d MB it may have; pack it with smaller windows or fewer entries", memory>>20)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGXCPU {
			return fmt.Errorf("unpacking it takes more than %d seconds of processor time", cpuSeconds)
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	if err == nil {
		err = errors.New("without a word")
	}
	return fmt.Errorf("the process that unpacks it ended before it was done: %w %s", err, first)
}

// tail keeps the beginning of what a child says before it dies.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	if left := most - len(t.b); left > 0 {
		t.b = append(t.b, p[:min(left, len(p))]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.b), "?") }
