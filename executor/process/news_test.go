package process

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"tandem/executor"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not in time: %s", what)
}

// TestOneStreamForAllTasks: however many tasks are waited for, the daemon holds one
// stream and is not asked again and again. After a restart of the daemon, there
// is one more, and what ended meanwhile is known.
func TestOneStreamForAllTasks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	const n = 6
	var pids [n]int
	var ends [n]chan executor.Exit
	var waits sync.WaitGroup
	defer waits.Wait()
	for i := range n {
		id := strconv.Itoa(i)
		pids[i] = launch(t, r, h.task(r, id, "sleep 600")).Pid
		ends[i] = make(chan executor.Exit, 1)
		waits.Go(func() { ends[i] <- wait(t, r, id) })
	}
	kill := func(i int) {
		t.Helper()
		if err := syscall.Kill(pids[i], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n / 3 {
		kill(i)
		if e := <-ends[i]; e.Signal != int(syscall.SIGKILL) {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if got := h.count("GET /v1/events"); got != 1 {
		t.Errorf("%d streams", got)
	}
	// One look for each that is created or waited for, and no more.
	if got := h.count("GET /v1/tasks/"); got > 3*n {
		t.Errorf("%d questions for %d tasks", got, n)
	}
	h.down()
	for i := n / 3; i < 2*n/3; i++ {
		kill(i)
	}
	h.up()
	for i := n / 3; i < 2*n/3; i++ {
		e := <-ends[i]
		if e.Signal != int(syscall.SIGKILL) && e.Known {
			t.Errorf("%d, which ended while the daemon was away: %+v", i, e)
		}
	}
	eventually(t, "one more stream", func() bool { return h.count("GET /v1/events") == 2 })
	for i := 2 * n / 3; i < n; i++ {
		select {
		case e := <-ends[i]:
			t.Fatalf("the restart ended %d: %+v", i, e)
		default:
		}
		kill(i)
		<-ends[i]
	}
	if got := h.count("GET /v1/tasks/"); got > 4*n {
		t.Errorf("%d questions for %d tasks", got, n)
	}
}

// A daemon that comes back without its records knows nothing of the task: that is
// an error, or an end of which nothing is known once it has ended.
func TestP6ATaskThatTheDaemonHasForgotten(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	st := launch(t, r, h.task(r, "a", "sleep 600"))
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		e, err := r.Wait(ctx, "a")
		if err == nil && e.Known {
			t.Errorf("the end is known: %+v", e)
		}
		done <- err
	}()
	eventually(t, "the stream", func() bool { return h.count("GET /v1/events") == 1 })
	h.down()
	records, err := filepath.Glob(filepath.Join(h.dir, "data/processd/tasks/*.json"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if err := os.Remove(records[0]); err != nil {
		t.Fatal(err)
	}
	h.up()
	if err := <-done; err != nil && !client.IsCode(err, protocol.CodeNotFound) {
		t.Errorf("%v", err)
	}
	// A process that no record names is killed by the daemon that finds its group.
	eventually(t, "the end of the process", func() bool { return syscall.Kill(st.Pid, 0) != nil })
}
