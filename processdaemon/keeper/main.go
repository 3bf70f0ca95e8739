package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
	"tandem/internal/unixhttp"
)

// Command is the first argument of a program that is to be a keeper.
const Command = "keeper"

// Asked tells whether this program was started to be a keeper. A program that
// runs a process daemon asks it before everything else, and hands over to Main.
func Asked() bool { return len(os.Args) >= 3 && os.Args[1] == Command }

// readyFile is the descriptor on which a keeper tells that it listens, by closing
// it, or what is wrong.
const readyFile = 3

// Main is a keeper process: keeper <directory> [<control group>]. It returns the
// exit code.
func Main() int {
	ready := os.NewFile(readyFile, "ready")
	unix.CloseOnExec(readyFile)
	err := run(os.Args[2], func() { ready.Close() })
	if len(os.Args) > 3 {
		// Nobody else may be there to do it.
		cgroup.Open(os.Args[3]).Abandon(groupName)
	}
	if err != nil {
		logf("%v", err)
		fmt.Fprintf(ready, "%v", err) // the log has it if nobody listens
		return 1
	}
	return 0
}

// logf writes to the keeper's log, which is stderr.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s pid %d: %s\n", time.Now().UTC().Format(time.RFC3339), os.Getpid(), fmt.Sprintf(format, args...))
}

func run(dir string, ready func()) error {
	// Few threads and an eager collector keep it small.
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(20)
	// Caught rather than ignored, because processes would inherit the latter.
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	if err := prepare(); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := lock(dir); err != nil {
		return err
	}
	k, err := newKeeper(dir, logf)
	if err != nil {
		return err
	}
	l, err := unixhttp.Listen(context.Background(), socketPath(d), "")
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { defer close(done); k.serve(l) }()
	ready()
	// What starting took is not needed again.
	debug.FreeOSMemory()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			k.mu.Lock()
			k.reap()
			k.mu.Unlock()
		case s := <-sigs:
			k.mu.Lock()
			switch s {
			case syscall.SIGCHLD:
			case syscall.SIGTERM:
				// The machine goes down, or somebody tidies up: what runs keeps its parent.
				if !k.needed() {
					k.retire()
				}
			default:
			}
			k.reap()
			k.mu.Unlock()
		}
	}
}

// lookAgain bounds how long an end can go unnoticed whose signal was lost.
const lookAgain = time.Minute

// socketPath leads to the socket through an open directory, because the whole
// path may be longer than sockaddr_un takes.
func socketPath(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/socket", dir.Fd()) }

// lockTime is how long a keeper waits for the end of its predecessor.
const lockTime = 5 * time.Second

// lock makes this keeper the only one of its directory, for as long as it lives.
func lock(dir string) error {
	fd, err := unix.Open(filepath.Join(dir, "lock"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	for end := time.Now().Add(lockTime); ; time.Sleep(time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK), time.Now().After(end):
			return fmt.Errorf("lock of %s: %w; another keeper has it", dir, err)
		}
	}
}

// protected tells that the keeper asked the kernel to be spared when memory is
// short, and inheritedScore what its processes had got otherwise.
var (
	protected      bool
	inheritedScore int
)

func oomScore(asked int) int {
	if asked != 0 {
		return asked
	}
	// The daemon may be spared (OOMScoreAdjust= of its unit); tasks are not for that.
	return max(0, inheritedScore)
}

// prepare makes this process the parent that processes are to have: umask,
// limits, files.
func prepare() error {
	syscall.Umask(0o022)
	// What whoever started the daemon left open must not reach processes. All that
	// Go opens itself is closed on exec.
	if err := unix.CloseRange(readyFile, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		logf("close_range: %v; processes may inherit open files of whoever started the daemon", err)
	}
	if err := procid.BecomeSubreaper(); err != nil {
		return err
	}
	if err := setRlimits(); err != nil {
		logf("%v; processes get the limits of the daemon", err)
	}
	const self, least = "/proc/self/oom_score_adj", "-1000"
	if b, err := os.ReadFile(self); err == nil {
		inheritedScore, err = strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil && os.WriteFile(self, []byte(least), 0) == nil {
			protected = true
		}
	}
	return nil
}

// setRlimits sets the limits that processes are to inherit, so that they do not
// depend on how the daemon was started: 65536 files (databases ask for it) as
// far as the hard limit goes, and no core files in the sandbox.
func setRlimits() error {
	const files = 65536
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	if err == nil {
		l.Cur = min(files, l.Max)
		// Through package syscall, which otherwise gives children back the limit
		// that this program was started with.
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
	var core syscall.Rlimit
	if err == nil {
		err = syscall.Getrlimit(syscall.RLIMIT_CORE, &core)
	}
	if err == nil {
		core.Cur = 0
		err = syscall.Setrlimit(syscall.RLIMIT_CORE, &core)
	}
	if err != nil {
		return fmt.Errorf("set resource limits: %w", err)
	}
	return nil
}
