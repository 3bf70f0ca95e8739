// Package processdaemon is the daemon that owns the processes of an agent. It
// fetches what they need, starts them, watches them, stops them with everything
// they forked, and finds them again after it was killed itself. Executors use
// it through its HTTP API on a unix socket (package client).
//
// It must never signal a process that it cannot identify beyond doubt, run a
// task as another user than asked for, report success for an end that nobody
// saw, or leave anything of a dead executor's tasks running.
package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
	"tandem/internal/cgroup"
	"tandem/internal/failpoint"
	"tandem/internal/filelock"
	"tandem/internal/journal"
	"tandem/internal/procid"
	"tandem/processdaemon/fetch"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/protocol"
)

// Options of a daemon.
type Options struct {
	// DataDir holds the records (below processd) and the journal (below journal).
	DataDir string
	// Workspace holds work_dir and run_dir; empty is DataDir/workspace.
	Workspace string
	// Version is shown by the API.
	Version string
	// Log receives what happens; nil is slog.Default.
	Log *slog.Logger
	// OwnProgram tells that the daemon is all there is in this program. It then
	// inherits the processes of a keeper that was killed (it is the next subreaper),
	// and collects every child.
	OwnProgram bool
	// Keeper is the program that is run as the keeper, see keeper.Asked, and to
	// unpack archives, see unpack.Asked; empty is the daemon's own.
	Keeper string
	// DefaultUser is the account of tasks that name none; empty is the daemon's own.
	DefaultUser string
	// StartTimeout bounds a start command with a pid file whose task says nothing of it;
	// 0 is five minutes.
	StartTimeout time.Duration
	// DefaultPids is the most processes and threads of tasks that say nothing of it; 0 is
	// no limit.
	DefaultPids int64
	// PrepareTimeout bounds the preparation of a task, fetching and unpacking; 0 is an hour.
	PrepareTimeout time.Duration
	// ReapInterval is the pause between two looks at all owners while something happens, or
	// where the kernel cannot tell of a death; 0 is 500 ms.
	ReapInterval time.Duration
	// Cleaners undo abandoned intents of other kinds than "process".
	Cleaners map[string]Cleaner
	// LogSize is the size in bytes at which the output of a process is rotated; 0: never.
	LogSize int64
	// LogFiles is how many older pieces of it are kept.
	LogFiles int
	// Fetch bounds what is fetched.
	Fetch fetch.Limits
}

// Daemon owns processes. Make one with New and end it with Close.
type Daemon struct {
	opts         Options
	log          *slog.Logger
	boot         string
	store        *store
	tree         *cgroup.Tree
	fetcher      *fetch.Fetcher
	journal      *journal.Journal
	lock         *filelock.Lock
	kids         children
	parent       *parent
	rotator      *rotator
	reaper       *reaper
	feed         feed
	deletionTime time.Duration
	// reloadTimeout, busyTime, patience and the bounds of a body are others in tests.
	reloadTimeout time.Duration
	busyTime      time.Duration
	bodyTime      time.Duration
	maxBody       int64
	openPid       func(int) (*procid.Process, error)
	// successors is how many processes one start may name in its pid file.
	successors int
	// patience is how long a client may take to read what it is being told.
	patience time.Duration
	clock    func() time.Time
	// calm gives memory back once nothing has happened for a while; nil in a program of others.
	calm *time.Timer
	// troubles are what was damaged or cannot be used, for Info; New alone adds to them.
	troubles []string
	// files knows whose the files of secrets and configmaps are.
	files fileOwners
	// uploads is held while a file is uploaded.
	uploads sync.Mutex

	ctx    context.Context //nolint:containedctx // the daemon's own life, which Close ends
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	tasks  map[string]*task
	closed bool
}

// New opens the data directory, takes up what an earlier daemon left and
// starts to look after it.
func New(opts Options) (*Daemon, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.StartTimeout <= 0 {
		opts.StartTimeout = 5 * time.Minute
	}
	if opts.PrepareTimeout <= 0 {
		opts.PrepareTimeout = time.Hour
	}
	if opts.ReapInterval <= 0 {
		opts.ReapInterval = 500 * time.Millisecond
	}
	dataDir, err := filepath.Abs(opts.DataDir)
	if err != nil || opts.DataDir == "" {
		return nil, fmt.Errorf("data directory %q: name one that is writable", opts.DataDir)
	}
	if opts.Workspace == "" {
		opts.Workspace = filepath.Join(dataDir, "workspace")
	}
	if opts.Workspace, err = filepath.Abs(opts.Workspace); err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	d := &Daemon{opts: opts, log: opts.Log, tasks: map[string]*task{}, deletionTime: deletionTime, clock: time.Now,
		reloadTimeout: reloadTimeout, busyTime: busyTime, bodyTime: bodyTime, maxBody: maxBody, patience: readerPatience, successors: successors, openPid: procid.OpenPid}
	if d.boot, err = procid.BootID(); err != nil {
		return nil, err
	}
	d.reaper = newReaper(d)
	d.store = &store{dir: filepath.Join(dataDir, "processd"), trouble: d.trouble}
	if err := d.openDirs(dataDir); err != nil {
		d.lock.Release()
		return nil, err
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if opts.OwnProgram {
		d.calm = time.AfterFunc(calmTime, debug.FreeOSMemory)
		// What whoever started the daemon left open must not reach what it runs.
		const first = 3
		if err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
			d.log.Warn("commands beside tasks may inherit open files of whoever started the daemon", "err", err)
		}
		if err := procid.BecomeSubreaper(); err != nil {
			d.log.Warn("exit codes of background processes will be unknown", "err", err)
		} else {
			d.wg.Go(func() { d.kids.collect(d.ctx) })
		}
	}
	d.rotator = newRotator(opts.LogSize, opts.LogFiles, d.log)
	d.wg.Go(func() { d.rotator.run(d.ctx) })
	if _, err := d.parent.client(d.ctx); err != nil {
		// What runs is looked after all the same; each start tries again.
		d.trouble("no process can be started", err)
	}
	d.recover()
	if d.journal != nil {
		d.wg.Go(func() { d.reaper.run(d.ctx) })
	}
	if d.fetcher != nil {
		d.wg.Go(d.collectLoop)
	}
	d.log.Info("process daemon is up", "tracking", d.tree.String(), "data", dataDir, "workspace", opts.Workspace)
	return d, nil
}

// openDirs makes and opens the directories. Of a data directory that has served a
// daemon before, nothing but another daemon on it is a reason not to start: what runs is to be
// looked after on a full or read-only disk, too.
func (d *Daemon) openDirs(dataDir string) error {
	served := isDir(d.store.dir)
	// Tasks of other users work below the data directory, so it can be entered;
	// what is private in it is closed by itself.
	err := atomicfile.MkdirAll(dataDir, 0o755)
	if err == nil {
		err = atomicfile.MkdirAll(d.store.dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("%w; choose a data directory that is writable", err)
	}
	d.lock, err = filelock.Try(filepath.Join(d.store.dir, "lock"), 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("data directory %s: another process daemon uses it; stop that one or choose another directory", dataDir)
	}
	if err != nil {
		return fmt.Errorf("data directory: %w; choose one that is writable", err)
	}
	need := func(what string, err error) error {
		if err != nil && served {
			d.trouble(what, err)
			return nil
		}
		return err
	}
	for _, dir := range []string{d.workBase(), d.runBase()} {
		if err := need("the workspace cannot be used", os.MkdirAll(dir, 0o755)); err != nil {
			return fmt.Errorf("workspace: %w; choose one that is writable", err)
		}
	}
	if err := d.forgetUpload(); err != nil {
		d.trouble("a file that an upload has not finished is not removed", err)
	}
	d.journal, err = journal.Open(filepath.Join(dataDir, "journal"))
	if err := need("what dead executors leave is not removed until the daemon is restarted", err); err != nil {
		return err
	}
	d.fetcher, err = fetch.New(filepath.Join(d.store.dir, "cache"), d.opts.Fetch, d.unpacker())
	if err := need("nothing can be fetched until the daemon is restarted", err); err != nil {
		return err
	}
	// The subtree is the data directory's own, so that daemons side by side
	// never take one another's groups for left-overs.
	tasks, keepers := Trees(dataDir)
	d.tree = cgroup.Open(tasks)
	tree := cgroup.Open(keepers)
	for _, t := range []*cgroup.Tree{d.tree, tree} {
		if err := t.Hold(); err != nil {
			d.log.Warn("another daemon may take the control groups for left-overs while they are empty", "err", err)
		}
	}
	d.parent = &parent{log: d.log, kids: &d.kids, patience: keeperPatience, launch: keeper.Launch{
		Dir: filepath.Join(d.store.dir, "keeper"), Program: d.opts.Keeper, Tree: tree, Points: os.Getenv(failpoint.EnvVar),
	}}
	return nil
}

// trouble tells, in the log and in Info, what was damaged or cannot be used.
func (d *Daemon) trouble(what string, err error) {
	d.log.Error(what, "err", err)
	d.troubles = append(d.troubles, fmt.Sprintf("%s: %v", what, err))
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// Trees are the names of the subtrees of control groups that the daemon on a data
// directory, an absolute path, has for its tasks and for its keeper.
func Trees(dataDir string) (tasks, keepers string) {
	own := shortHash(dataDir)[:12]
	return "tandem/p-" + own, "tandem/k-" + own
}

func (d *Daemon) workBase() string { return filepath.Join(d.opts.Workspace, "work_dir") }
func (d *Daemon) runBase() string  { return filepath.Join(d.opts.Workspace, "run_dir") }

// Info describes the daemon.
func (d *Daemon) Info() protocol.Info {
	return protocol.Info{
		Version: d.opts.Version, API: protocol.Version, WorkBaseDir: d.workBase(), RunBaseDir: d.runBase(),
		Tracking: d.tree.String(), Pid: os.Getpid(), Keeper: d.parent.info(), Troubles: d.troubles,
	}
}

// Close stops looking after the tasks and leaves their processes running; a
// later daemon on the same data directory takes them up.
func (d *Daemon) Close() {
	d.mu.Lock()
	already := d.closed
	d.closed = true
	d.mu.Unlock()
	if already {
		return
	}
	d.cancel()
	d.wg.Wait()
	if d.calm != nil {
		d.calm.Stop()
	}
	d.parent.close()
	d.tree.Close()
	d.lock.Release()
}

// StopAll stops every task with this grace and deletes it. It is for a daemon
// that is not to be followed by another.
func (d *Daemon) StopAll(ctx context.Context, grace time.Duration) error {
	var errs []error
	all := d.List("")
	for _, s := range all {
		if _, err := d.Stop(s.ID, grace); err != nil && !isGone(err) {
			errs = append(errs, err)
		}
	}
	for _, s := range all {
		if err := d.awaitEnd(ctx, s.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := d.Delete(ctx, s.ID); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (d *Daemon) awaitEnd(ctx context.Context, id string) error {
	s, err := d.Status(id)
	for err == nil && s.State != ended && s.State != deleted {
		if s, err = d.Wait(ctx, id, s.Version); ctx.Err() != nil {
			return fmt.Errorf("task %q has not ended: %w", id, ctx.Err())
		}
	}
	if isGone(err) {
		return nil
	}
	return err
}

// isGone tells whether a request failed because there is no such task, perhaps since a moment ago.
func isGone(err error) bool {
	return isCode(err, protocol.CodeNotFound) || errors.Is(err, errTaskDone)
}

// calmTime is after how long without a change the memory that changes took is given
// back: a daemon that has started a thousand processes may then be idle for years.
const calmTime = 2 * time.Second

func fail(code, format string, args ...any) error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

var errShutdown = fail(protocol.CodeUnavailable, "the process daemon is shutting down")

func isCode(err error, code string) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Code == code
}
