package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/testkit"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// collapses tells whether the file system of a directory can cut off a file's head, without
// which what is written at that moment is lost.
func collapses(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	const block = 64 << 10
	if _, err := f.Write(make([]byte, 2*block)); err != nil {
		t.Fatal(err)
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 0, block) == nil
}

// numbers checks that what it is written are the lines 0, 1, 2, …
type numbers struct {
	lines atomic.Int64
	done  chan error
	in    *io.PipeWriter
}

func newNumbers() *numbers {
	r, w := io.Pipe()
	n := &numbers{done: make(chan error, 1), in: w}
	go func() {
		s := bufio.NewScanner(r)
		for s.Scan() {
			if want := strconv.FormatInt(n.lines.Load(), 10); s.Text() != want {
				err := fmt.Errorf("%q came where %s was to come", s.Text(), want)
				r.CloseWithError(err)
				n.done <- err
				return
			}
			n.lines.Add(1)
		}
		n.done <- s.Err()
	}()
	return n
}

// TestFaultFollowersReadEverythingOnce: a process writes to both streams as fast as it can, its
// output is cut again and again, and the daemon is replaced, stopped and killed meanwhile. Who
// follows the streams reads every byte once.
func TestFaultFollowersReadEverythingOnce(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	if !collapses(t, dir) {
		t.Skip("this file system cannot cut off a file's head, so output is lost in a cut")
	}
	program := filepath.Join(dir, "tandem-processd")
	placed(t, program)
	var cmd *exec.Cmd
	var c *client.Client
	begin := func() {
		cmd, c = startProgram(t, dir, program, nil, nil, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"),
			"--output-max-mb", "1", "--output-files", "1000")
	}
	begin()
	// Bursts of a quarter of a megabyte.
	const script = `w() { i=0; while [ ! -e %[1]s/stop ]; do seq $i $((i+39999)); i=$((i+40000)); sleep 0.02; done; }; w & w >&2; wait`
	st := startTask(t, c, dir, "a", fmt.Sprintf(script, dir))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	follower := client.New(filepath.Join(dir, "s"))
	defer follower.Close()
	streams := map[string]*numbers{"stdout": newNumbers(), "stderr": newNumbers()}
	var followers sync.WaitGroup
	for name, n := range streams {
		followers.Go(func() {
			err := follower.Logs(ctx, "a", name, 1<<30, true, n.in)
			n.in.CloseWithError(err) // nil is the end
		})
	}
	cuts := func(stream string) int {
		names, err := filepath.Glob(filepath.Join(dir, "sandbox/a", stream+".0*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	// more waits until both streams were cut again and were read on.
	more := func() {
		t.Helper()
		for name, n := range streams {
			cut, read := cuts(name), n.lines.Load()
			eventually(t, name+" is cut and read", func() bool {
				return cuts(name) > cut+1 && n.lines.Load() > read || len(n.done) > 0
			})
		}
	}
	more()
	for round := range 6 {
		switch round % 3 {
		case 0:
			placed(t, program)
			if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
		case 1:
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			begin()
		case 2:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
			begin()
		}
		more()
	}
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if end := awaitEnd(t, c, "a"); end.Pid != st.Pid || end.Exit == nil || *end.Exit != (protocol.Exit{Known: true}) {
		t.Errorf("%+v %+v", end, end.Exit)
	}
	followers.Wait()
	for name, n := range streams {
		if err := <-n.done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if lines := n.lines.Load(); lines == 0 || lines%40000 != 0 {
			t.Errorf("%s: %d lines were read", name, lines)
		} else {
			t.Logf("%s: %d lines, cut %d times", name, lines, cuts(name))
		}
	}
	if err := c.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
