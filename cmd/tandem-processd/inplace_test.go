package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
	"tandem/processdaemon"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// placed puts a program where an installation would have it.
func placed(t *testing.T, to string) os.FileInfo {
	t.Helper()
	b, err := os.ReadFile(binary)
	if err == nil {
		// A child that another test forks meanwhile would have the file open for writing until its exec,
		// and nobody could run it (execve(2), ETXTBSY).
		syscall.ForkLock.RLock()
		err = os.WriteFile(to+".new", b, 0o755)
		syscall.ForkLock.RUnlock()
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// startProgram starts a daemon whose log is in a file.
func startProgram(t *testing.T, dir, program string, env []string, files []*os.File, args ...string) (*exec.Cmd, *client.Client) {
	t.Helper()
	cgrouptest.Expect(processdaemon.Trees(filepath.Join(dir, "data")))
	cmd := exec.Command(program, args...)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr, cmd.Env, cmd.ExtraFiles = log, append(os.Environ(), env...), files
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := client.New(filepath.Join(dir, "s"))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		c.Close()
		if t.Failed() {
			t.Log(logOf(dir))
		}
	})
	eventually(t, "it answers", func() bool { _, err := c.Info(context.Background()); return err == nil })
	return cmd, c
}

func logOf(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "log"))
	return string(b)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time:", what)
		}
	}
}

// TestFaultUpgradeUnderLoad: SIGUSR2 replaces the program of a daemon with 50 processes while
// clients work with it. No connection is refused, no request lost, the pid and the
// processes stay, and all exit codes are known.
func TestFaultUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	program := filepath.Join(dir, "tandem-processd")
	placed(t, program)
	cmd, c := startProgram(t, dir, program, nil, nil, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"))
	fifo := filepath.Join(dir, "go")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	const processes = 50
	pids := map[string]int{}
	for i := range processes {
		id := fmt.Sprint("p", i)
		st := startTask(t, c, dir, id, fmt.Sprintf("read x < %s; exit %d", fifo, i))
		pids[id] = st.Pid
	}
	before, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	var requests atomic.Int64
	for w := range 3 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := workLoop(c, dir, fmt.Sprintf("w%d-%d", w, n)); err != nil {
					t.Error(err)
					return
				}
				requests.Add(1)
			}
		})
	}
	load.Go(func() {
		// Without connections that are kept, so without anything that tries again.
		h := unixhttp.Client(filepath.Join(dir, "s"))
		h.Transport.(*http.Transport).DisableKeepAlives = true
		for ctx.Err() == nil {
			resp, err := h.Get("http://processd/v1/tasks")
			if err != nil {
				t.Error(time.Now().UTC().Format("15:04:05.000000"), "a connection failed:", err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error("an answer broke off:", err)
			}
			resp.Body.Close()
			requests.Add(1)
		}
	})
	for round := range 3 {
		want := placed(t, program)
		enough := requests.Load() + 20
		eventually(t, "clients work", func() bool { return requests.Load() > enough || t.Failed() })
		if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new program runs", func() bool {
			st, err := os.Stat(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
			return err == nil && os.SameFile(st, want) && strings.Count(logOf(dir), "msg=serving") == round+2 || t.Failed()
		})
	}
	cancel()
	load.Wait()
	t.Logf("%d rounds of requests", requests.Load())

	after, err := c.Info(t.Context())
	if err != nil || after.Pid != before.Pid || after.Keeper == nil || after.Keeper.Pid != before.Keeper.Pid {
		t.Errorf("before %+v %+v, after %+v %+v, %v", before, before.Keeper, after, after.Keeper, err)
	}
	for id, pid := range pids {
		if st, err := c.Status(t.Context(), id); err != nil || st.State != protocol.StateRunning || st.Pid != pid {
			t.Errorf("%s: %+v %v", id, st, err)
		}
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	for i := range processes {
		id := fmt.Sprint("p", i)
		st := awaitEnd(t, c, id)
		if st.Exit == nil || !st.Exit.Known || st.Exit.Code != i {
			t.Errorf("%s: %+v", id, st.Exit)
		}
		if err := c.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "s")); err == nil {
		t.Error("the socket is still there")
	}
}

func startTask(t *testing.T, c *client.Client, dir, id, line string) protocol.Status {
	t.Helper()
	st, err := c.Create(t.Context(), &protocol.Spec{ID: id, Owner: "o", StartCmd: line, Sandbox: filepath.Join(dir, "sandbox", id)})
	for err == nil && st.State == protocol.StatePreparing {
		st, err = c.Poll(t.Context(), id, st.Version, time.Second)
	}
	if err == nil {
		st, err = c.Start(t.Context(), id, 20*time.Second)
	}
	if err != nil || st.State != protocol.StateRunning {
		t.Fatalf("%s: %+v %v", id, st, err)
	}
	return st
}

func awaitEnd(t *testing.T, c *client.Client, id string) protocol.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := c.Status(ctx, id)
	for err == nil && st.State != protocol.StateEnded {
		st, err = c.Poll(ctx, id, st.Version, time.Second)
	}
	if err != nil {
		t.Fatalf("%s: %+v %v", id, st, err)
	}
	return st
}

// finish ends a task, removes it, and ends the daemon.
func finish(t *testing.T, daemon *exec.Cmd, c *client.Client, id string) {
	t.Helper()
	if _, err := c.Stop(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, c, id)
	if err := c.Delete(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Error(err)
	}
}

// workLoop is the life of a task, as an executor has it.
func workLoop(c *client.Client, dir, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := c.Create(ctx, &protocol.Spec{ID: id, Owner: "o", StartCmd: "sleep 60", Sandbox: filepath.Join(dir, "sandbox", id)})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	st, err := c.Start(ctx, id, 20*time.Second)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	// The end of the daemon that was asked may have cut the wait short.
	for st.State == protocol.StateStarting || st.State == protocol.StateReady {
		if st, err = c.Poll(ctx, id, st.Version, time.Second); err != nil {
			return fmt.Errorf("poll: %w", err)
		}
	}
	if st.State != protocol.StateRunning {
		return fmt.Errorf("%s did not start: %+v", id, st)
	}
	if st, err = c.Stop(ctx, id, 0); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	for st.State != protocol.StateEnded {
		if st, err = c.Poll(ctx, id, st.Version, time.Second); err != nil {
			return fmt.Errorf("poll: %w", err)
		}
	}
	if err := c.Delete(ctx, id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// TestFaultUpgradeToNothing: a program that is gone, does not run, or refuses the
// configuration does not take over; the daemon goes on.
func TestFaultUpgradeToNothing(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	program, conf := filepath.Join(dir, "tandem-processd"), filepath.Join(dir, "conf.yaml")
	placed(t, program)
	if err := os.WriteFile(conf, []byte("log-level: info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, c := startProgram(t, dir, program, nil, nil, "--config", conf, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"))
	st := startTask(t, c, dir, "a", "sleep 60")
	for i, spoil := range []func() error{
		func() error { return os.Remove(program) },
		func() error { return os.WriteFile(program, []byte("no program"), 0o755) },
		func() error { placed(t, program); return os.WriteFile(conf, []byte("log-lewel: info\n"), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is refused", func() bool { return strings.Count(logOf(dir), "the program cannot take over") == i+1 })
		if now, err := c.Status(t.Context(), "a"); err != nil || now.Pid != st.Pid || now.State != protocol.StateRunning {
			t.Errorf("%+v %v", now, err)
		}
	}
	if !strings.Contains(logOf(dir), "did you mean log-level?") {
		t.Error("the log does not tell why")
	}
	finish(t, cmd, c, "a")
}
