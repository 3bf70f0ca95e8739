package master

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/internal/failpoint"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// childDir makes this test binary a master on that work directory, which prints
// its URL and runs until it is killed.
const childDir = "TANDEM_TEST_MASTER_DIR"

func runChild(dir string) int {
	m, err := New(Flags{WorkDir: dir})
	if err == nil {
		err = m.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(m.URL())
	select {}
}

// TestKilledWhileWriting kills a master right before and right after each change of its
// registry. The next one knows either the old or the new state, and never less
// than somebody was told.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	// What is done to the master, one change of the registry each.
	steps := []string{"admit", "gone", "weights", "teardown"}
	for _, point := range []string{"write", "written"} {
		for n, fatal := range steps {
			t.Run(point+" "+fatal, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				spec := fmt.Sprintf("mesos-master/registry/%s=%d*off->kill", point, n+1)
				child := startChild(t, dir, spec)
				told := map[string]string{}
				var first string // an agent that is there before
				if id, ok := child.admit(); ok {
					first = id
				} else {
					t.Fatal("the first registration is not the fatal one")
				}
				for _, step := range steps[:n+1] {
					ok, id := true, ""
					switch step {
					case "admit":
						id, ok = child.admit()
					case "gone":
						ok = child.operator(`{"type":"MARK_AGENT_GONE","mark_agent_gone":{"agent_id":{"value":"` + first + `"}}}`)
					case "weights":
						ok = child.operator(`{"type":"UPDATE_WEIGHTS","update_weights":{"weight_infos":[{"role":"a","weight":2}]}}`)
					case "teardown":
						if !child.subscribe("f") {
							t.Fatal("SUBSCRIBE failed")
						}
						ok = child.operator(`{"type":"TEARDOWN","teardown":{"framework_id":{"value":"f"}}}`)
					}
					if ok != (step != fatal) {
						t.Fatalf("%s: answered: %v", step, ok)
					}
					told[step] = id
				}
				child.waitKilled(t)

				m, err := New(Flags{WorkDir: dir})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if m.registry.lost != "" || m.blind {
					t.Error("the registry counts as damaged")
				}
				is := map[string]bool{"admit": len(m.recovered) > boolInt(!m.registry.isGone(first)), "gone": m.registry.isGone(first),
					"weights": m.weights["a"] == 2, "teardown": m.registry.isRemoved("f")}
				for i, step := range steps {
					want := i < n || (i == n && point == "written")
					if is[step] != want {
						t.Errorf("%s is in the registry: %v, want %v", step, is[step], want)
					}
				}
				left, err := filepath.Glob(filepath.Join(dir, ".tmp-*"))
				if err != nil || len(left) > 0 {
					t.Errorf("left over: %v %v", left, err)
				}
			})
		}
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// child is a master in a process of its own.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
}

func startChild(t *testing.T, dir, failpoints string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childDir+"="+dir, failpoint.EnvVar+"="+failpoints)
	var out lines
	c.cmd.Stdout, c.cmd.Stderr = &out, os.Stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	waitFor(t, "the URL of a master", func() bool { c.url = strings.TrimSpace(out.text()); return strings.HasPrefix(c.url, "http://") })
	return c
}

// lines is what a process wrote.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (c *child) admit() (id string, ok bool) {
	port := int32(time.Now().UnixNano() % 60000)
	body, err := json.Marshal(link.Subscribe{AgentInfo: mesos.AgentInfo{Hostname: "h", Port: &port}})
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := tryOpen(c.t, c.url+link.Path+"/subscribe", map[string]string{"Content-Type": "application/json"}, body, func(b []byte) link.Event {
		var e link.Event
		if err := json.Unmarshal(b, &e); err != nil {
			c.t.Errorf("message %s: %v", b, err)
		}
		return e
	})
	if err != nil {
		return "", false
	}
	return r.next(c.t, "REGISTERED", func(e link.Event) bool { return e.Registered != nil }).Registered.AgentID.Value, true
}

func (c *child) operator(body string) bool {
	status, err := tryPost(c.t, c.url+"/api/v1", body)
	return err == nil && status == 200
}

func (c *child) subscribe(id string) bool {
	body := `{"type":"SUBSCRIBE","framework_id":{"value":"` + id + `"},"subscribe":{"framework_info":{"user":"u","name":"n","id":{"value":"` + id + `"},"failover_timeout":60}}}`
	_, err := tryOpen(c.t, c.url+"/api/v1/scheduler", map[string]string{"Content-Type": "application/json", "Accept": "application/json"}, []byte(body), decodeEvent(c.t))
	return err == nil
}

func (c *child) waitKilled(t *testing.T) {
	t.Helper()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("the master ended: %v", err)
	}
	if w, ok := exit.Sys().(syscall.WaitStatus); !ok || w.Signal() != syscall.SIGKILL {
		t.Fatalf("the master ended: %v", exit)
	}
}

// TestDamagedRegistry: whatever is in the file, a master starts, keeps the file for
// people, says so, and says nothing of tasks that may be on agents it has forgotten.
func TestDamagedRegistry(t *testing.T) {
	t.Parallel()
	whole := wholeRegistry(t)
	for name, content := range map[string][]byte{
		"empty": {}, "torn": whole[:len(whole)/2], "zeros": make([]byte, len(whole)), "not an object": []byte("[1,2]\n"), "null": []byte("null"),
		"no version": []byte("{}"), "wrong types": []byte(`{"version":1,"agents":7}`), "binary": {0xff, 0xfe, 0x00, 0x01},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "registry.json"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			var log lines
			m := startMaster(t, func(f *Flags) {
				f.Registry, f.WorkDir, f.AgentReregisterTimeout = RegistryLog, dir, time.Hour
				f.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			kept, err := filepath.Glob(filepath.Join(dir, "registry.json.damaged-*"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("set aside: %v %v", kept, err)
			}
			if b, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(b, content) {
				t.Errorf("what was set aside has changed: %v", err)
			}
			if !strings.Contains(log.text(), "the registry is damaged and was set aside") || !strings.Contains(log.text(), kept[0]) {
				t.Errorf("the log says %s", log.text())
			}
			f := subscribe(t, m, "", multiRole)
			f.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"t"}},{"task_id":{"value":"t"},"agent_id":{"value":"old"}}]}`)
			f.none(t, "an answer", 20*time.Millisecond, ofType(scheduler.Event_UPDATE))
			a := startAgent(t, m, &link.Subscribe{AgentInfo: mesos.AgentInfo{ID: &mesos.AgentID{Value: "old"}}})
			f.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"t"},"agent_id":{"value":"`+a.id+`"}}]}`)
			f.update(t, "t")
			advance(m, time.Hour)
			waitFor(t, "the end of the wait", func() bool { blind := true; m.loop.do(func() { blind = m.blind }); return !blind })
			f.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"u"}}]}`)
			f.update(t, "u")
			m.Close()
			again, err := New(Flags{WorkDir: dir})
			if err != nil || again.registry.lost != "" || len(again.recovered) != 1 {
				t.Fatalf("the next start: %v", err)
			}
			again.Close()
		})
	}
}

func wholeRegistry(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	m := stillMaster(t, Flags{})
	m.registry.path = filepath.Join(dir, "registry.json")
	m.testAgent(t, 1, "cpus:1")
	m.Close()
	b, err := os.ReadFile(m.registry.path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDamagedEntry: one agent that cannot be read does not take the others along.
func TestDamagedEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content := `{"version":1,"agents":{"good":{"hostname":"h","id":{"value":"good"}},"bad":{"hostname":7}}}`
	if err := os.WriteFile(filepath.Join(dir, "registry.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := New(Flags{WorkDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, ok := m.recovered["good"]; !ok || len(m.recovered) != 1 || !m.blind || m.registry.lost != "" {
		t.Errorf("recovered %v, blind %v, lost %q", m.recovered, m.blind, m.registry.lost)
	}
}

// TestDiskIsFull: what cannot be recorded does not happen, where somebody would rely on it.
func TestDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	m := startMaster(t, func(f *Flags) { f.Registry, f.WorkDir = RegistryLog, dir })
	a := startAgent(t, m, nil)
	failpoint.ForTest(t, "mesos-master/registry/write=error(no space left on device)")
	for _, call := range []*apimaster.Call{
		{Type: apimaster.Call_MARK_AGENT_GONE, MarkAgentGone: &apimaster.Call_MarkAgentGone{AgentID: mesos.AgentID{Value: a.id}}},
		{Type: apimaster.Call_UPDATE_WEIGHTS, UpdateWeights: &apimaster.Call_UpdateWeights{WeightInfos: []mesos.WeightInfo{{Role: new("a"), Weight: 2}}}},
	} {
		if status, _, text := operate(t, m, wire.JSON, call); status != 503 || !strings.Contains(text, "no space left on device") {
			t.Errorf("%s: %d %q", call.Type, status, text)
		}
	}
	if b := openAgent(t, m, link.Subscribe{}); b.status != 503 {
		t.Errorf("an agent was admitted: %d %s", b.status, b.body)
	}
	m.loop.do(func() {
		if m.registry.isGone(a.id) || m.agents[a.id] == nil || len(m.weights) != 0 || len(m.agents) != 1 || len(m.registry.data.Agents) != 1 {
			t.Error("something has changed all the same")
		}
	})
}

// TestBoundsOfTheRegistry: it does not grow for ever.
func TestBoundsOfTheRegistry(t *testing.T) {
	t.Parallel()
	m := stillMaster(t, Flags{})
	defer m.Close()
	began := time.Now()
	for i := range maxLostAgents + 3 {
		m.registry.data.Unreachable[strconv.Itoa(i)] = unreachableAgent{Since: began.Add(time.Duration(i))}
	}
	if err := m.registry.lose("last", began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"0": false, "3": false, "4": true, "last": true} {
		if _, ok := m.registry.data.Unreachable[id]; ok != want {
			t.Errorf("agent %s is kept: %v", id, ok)
		}
	}
	for i := range maxRemovedFrameworks + 1 {
		if err := m.registry.removeFramework(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if m.registry.isRemoved("0") || !m.registry.isRemoved("1") {
		t.Error("not the oldest framework was forgotten")
	}
}
