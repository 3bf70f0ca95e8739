package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"tandem/cmd/tandem/exit"
	"tandem/internal/atomicfile"
	"tandem/internal/procid"
	"tandem/internal/unixhttp"
)

const (
	// daemonStartTimeout is how long the process daemon may take to adopt what
	// an earlier one left and to answer.
	daemonStartTimeout = 15 * time.Second
	// daemonStopTimeout is how long it may take to end after SIGTERM.
	daemonStopTimeout = 10 * time.Second
)

// daemon is tandem-processd as a child. It has a session of its own, so that a
// Ctrl-C at the terminal reaches this program only, and it outlives a crash of
// this program: the processes that it owns do, too, and somebody must clean up
// after executors that die meanwhile.
type daemon struct {
	cmd    *exec.Cmd
	socket string
	// record names the daemon's process for the next run.
	record string
	log    string
	done   chan struct{}
	err    error
}

// startDaemon ends a daemon that an earlier run left, starts a new one that
// adopts its processes, and waits until that one answers.
func startDaemon(ctx context.Context, binary string, d *dataDir, socket string, env []string) (*daemon, error) {
	p := &daemon{socket: socket, record: d.join("processd.json"), log: d.join("log", processdBinary+".log"), done: make(chan struct{})}
	if err := endOldDaemon(ctx, p.record); err != nil {
		return nil, err
	}
	log, err := openLog(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"--data-dir", d.join("tasks"), "--workspace", d.join("tasks", "workspace"), "--socket", socket}
	if os.Geteuid() == 0 {
		// The stack is its user's own, and nobody may not enter a data directory in
		// that user's home.
		args = append(args, "--default-user", "root")
	}
	p.cmd = exec.Command(binary, args...) //nolint:noctx // Stop ends it, with grace
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = env
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := p.remember(); err != nil {
		return nil, errors.Join(err, p.stop(context.WithoutCancel(ctx)))
	}
	if err := p.waitReady(ctx); err != nil {
		_ = p.stop(context.WithoutCancel(ctx)) // that it did not start is what counts
		return nil, fmt.Errorf("%s did not start: %w; its log %s ends:\n%s", processdBinary, err, p.log, tailFile(p.log, 2000))
	}
	return p, nil
}

func (p *daemon) remember() error {
	id, err := procid.Of(p.cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("identify %s: %w", processdBinary, err)
	}
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return atomicfile.Write(p.record, data, 0o644)
}

func (p *daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, daemonStartTimeout)
	defer cancel()
	client := unixhttp.Client(p.socket)
	defer client.CloseIdleConnections()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://processd/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			// Whatever it says, it serves: it adopts before it listens.
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %w", cmpOr(p.err, errors.New("exit code 0")))
		case <-ctx.Done():
			return fmt.Errorf("no answer on %s: %w", p.socket, err)
		case <-tick.C:
		}
	}
}

// stop ends the daemon with SIGTERM, after a while with SIGKILL, and waits for its end.
func (p *daemon) stop(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, daemonStopTimeout)
	defer cancel()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
	case <-ctx.Done():
		err = fmt.Errorf("%s did not end within %s of SIGTERM and was killed", processdBinary, daemonStopTimeout)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	os.Remove(p.record)
	return err
}

// endOldDaemon ends the daemon that a killed run left. Processes are not its
// children in a way that matters: the next daemon adopts them.
func endOldDaemon(ctx context.Context, record string) error {
	data, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the record of an earlier %s: %w", processdBinary, err)
	}
	var id procid.Identity
	if json.Unmarshal(data, &id) != nil || id.IsZero() {
		return nil // a record cut short by a power loss; the machine has restarted since
	}
	old, err := procid.Open(id)
	if err != nil {
		return nil // it is gone, which is what is wanted
	}
	defer old.Close()
	for _, step := range []struct {
		signal syscall.Signal
		limit  time.Duration
	}{{syscall.SIGTERM, daemonStopTimeout}, {syscall.SIGKILL, 5 * time.Second}} {
		if err := old.Signal(step.signal); errors.Is(err, procid.ErrGone) {
			return nil
		}
		waitCtx, cancel := context.WithTimeout(ctx, step.limit)
		err := old.Wait(waitCtx)
		cancel()
		if err == nil {
			return nil
		}
	}
	return exit.Errorf(exit.Failure, "%s of an earlier run (pid %d) does not end: end it by hand", processdBinary, id.Pid)
}

// maxLog is the size at which a log is set aside when a stack starts.
const maxLog = 16 << 20

// openLog opens a log for appending; one that has grown large is set aside first.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory for logs: %w", err)
	}
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("set a large log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}

// tailFile returns the last bytes of a file, from the beginning of a line.
func tailFile(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(data) > n {
		data = data[len(data)-n:]
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return string(bytes.TrimRight(data, "\n"))
}

func cmpOr(err, or error) error {
	if err != nil {
		return err
	}
	return or
}
