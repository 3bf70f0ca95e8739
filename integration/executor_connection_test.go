package integration

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// wire is a TCP proxy between an executor and its agent that can be cut.
type wire struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	down   bool
	accept int
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: target, conns: map[net.Conn]struct{}{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	t.Cleanup(func() { l.Close(); w.cut(); <-done })
	return w
}

func (w *wire) carry(c net.Conn) {
	defer c.Close()
	w.mu.Lock()
	if w.down {
		w.mu.Unlock()
		return
	}
	w.accept++
	w.mu.Unlock()
	d, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer d.Close()
	w.mu.Lock()
	w.conns[c], w.conns[d] = struct{}{}, struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.conns, c)
		delete(w.conns, d)
		w.mu.Unlock()
	}()
	done := make(chan struct{}, 2)
	go func() { io.Copy(c, d); done <- struct{}{} }()
	go func() { io.Copy(d, c); done <- struct{}{} }()
	<-done
}

// cut breaks all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

func (w *wire) set(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

// slow is a process that takes a second to start.
func slow(c *cluster, name string) *api.TaskSpec {
	s := proc(c, name, "sleep 1; sleep 1000 & echo $! > pid")
	s.Process.ProcName, s.Process.PidFile, s.Process.StartGracePeriodSeconds = "sleep", "pid", 1
	return s
}

func TestFaultConnectionDroppedAgainAndAgain(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{checkpoint: true, backoff: 200 * time.Millisecond})
	w := newWire(t, c.agentAddress())
	c.executorEnv = "MESOS_AGENT_ENDPOINT=" + w.listener.Addr().String()
	g := c.launch(proc(c, "a", "exec sleep 1000"), slow(c, "b"))
	// Once the executor has its tasks: events that are lost with a connection do not come again.
	eventually(t, 10*time.Second, "the first update", func() bool { return c.states(g, "a") != "" && c.states(g, "b") != "" })
	for range 5 {
		time.Sleep(20 * time.Millisecond) // cuts hit different moments
		w.cut()
	}
	c.waitState(g, "a", mesos.TASK_RUNNING)
	c.waitState(g, "b", mesos.TASK_RUNNING)
	// One ends while there is no connection; the news comes with the next subscription.
	w.set(true)
	w.cut()
	if err := syscall.Kill(c.report(g, "a").Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	w.set(false)
	c.waitState(g, "a", mesos.TASK_FAILED)
	c.waitState(g, "b", mesos.TASK_KILLED)
	c.waitExecutorGone(g)
	c.nothingLeft()
	for _, name := range []string{"a", "b"} {
		seen := map[mesos.TaskState]int{}
		for _, s := range c.all(g, name) {
			seen[s.GetState()]++
			if s.GetState() == mesos.TASK_LOST {
				t.Errorf("%s was lost: %s", name, s.GetMessage())
			}
		}
		if seen[mesos.TASK_RUNNING] == 0 {
			t.Errorf("%s: states %v", name, seen)
		}
	}
}
