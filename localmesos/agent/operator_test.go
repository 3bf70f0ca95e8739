package agent

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xagent "github.com/mesos/mesos-go/api/v1/lib/agent"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// operate makes a call of the operator API.
func operate(t *testing.T, a *Agent, body string) (int, string, *xagent.Response) {
	t.Helper()
	status, text := do(t, http.MethodPost, a.URL()+"/api/v1", "application/json", string(wire.JSON), body)
	r := &xagent.Response{}
	if status == http.StatusOK {
		if _, err := wire.Unmarshal(wire.JSON, []byte(text), r); err != nil {
			t.Fatal(err)
		}
	}
	return status, text, r
}

func TestFilesByCalls(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(false, "x1", "ok", "t1"))
	dir := sandboxOf(t, a, "x1")
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("0123456789\xff"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "etc")); err != nil {
		t.Fatal(err)
	}
	const virtual = "/frameworks/f1/executors/x1/runs/latest"
	for _, base := range []string{dir, virtual} {
		_, text, r := operate(t, a, `{"type":"LIST_FILES","list_files":{"path":"`+base+`"}}`)
		found := false
		for _, f := range r.GetListFiles().GetFileInfos() {
			if f.Path == base+"/file" {
				found = f.GetSize_() == 11 && f.GetMode()&0o777 == 0o640 && f.GetMtime() != nil && f.GetUID() != ""
			}
		}
		if !found {
			t.Errorf("%s", text)
		}
		_, text, r = operate(t, a, `{"type":"READ_FILE","read_file":{"path":"`+base+`/file","offset":8,"length":100}}`)
		if f := r.GetReadFile(); f.GetSize_() != 11 || string(f.GetData()) != "89\xff" {
			t.Errorf("%s", text)
		}
		_, text, r = operate(t, a, `{"type":"READ_FILE","read_file":{"path":"`+base+`/file","offset":3,"length":2}}`)
		if f := r.GetReadFile(); string(f.GetData()) != "34" {
			t.Errorf("%s", text)
		}
		_, text, r = operate(t, a, `{"type":"READ_FILE","read_file":{"path":"`+base+`/file","offset":99}}`)
		if f := r.GetReadFile(); f.GetSize_() != 11 || len(f.GetData()) != 0 {
			t.Errorf("%s", text)
		}
	}
	for body, want := range map[string]int{
		`{"type":"LIST_FILES"}`: 400,
		`{"type":"READ_FILE"}`:  400,
		`{"type":"LIST_FILES","list_files":{"path":"` + dir + `/none"}}`:                 404,
		`{"type":"LIST_FILES","list_files":{"path":"` + dir + `/file"}}`:                 404,
		`{"type":"LIST_FILES","list_files":{"path":"` + dir + `/etc"}}`:                  403,
		`{"type":"LIST_FILES","list_files":{"path":"/etc"}}`:                             404,
		`{"type":"READ_FILE","read_file":{"path":"` + dir + `","offset":0}}`:             400,
		`{"type":"READ_FILE","read_file":{"path":"` + dir + `/etc/passwd","offset":0}}`:  403,
		`{"type":"READ_FILE","read_file":{"path":"` + dir + `/../../../..","offset":0}}`: 404,
		`{"type":"LAUNCH_NESTED_CONTAINER"}`:                                             501,
	} {
		if status, text, _ := operate(t, a, body); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// What an executor starts counts, too.
func TestStatisticsCountTheWholeTree(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "fork", "t1"))
	fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "daemon"), "\n")
	var list []runningContainer
	eventually(t, "both processes are found", func() bool {
		list, _ = a.runningContainers((&http.Request{}).WithContext(t.Context()))
		u, err := list[0].container.Usage()
		return err == nil && u.Processes == 2 && u.Threads >= 2 && u.RSS > 0
	})
	_, text := get(t, a.URL()+"/monitor/statistics")
	var got []struct {
		Statistics struct {
			CPU  float64 `json:"cpus_soft_limit"`
			Mem  float64 `json:"mem_limit_bytes"`
			RSS  float64 `json:"mem_rss_bytes"`
			User float64 `json:"cpus_user_time_secs"`
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if s := got[0].Statistics; math.Abs(s.CPU-0.2) > 1e-9 || s.Mem != 64<<20 || s.RSS < 1<<16 {
		t.Errorf("%s", text)
	}
	_, text, r := operate(t, a, `{"type":"GET_CONTAINERS"}`)
	if c := r.GetGetContainers().GetContainers(); len(c) != 1 || c[0].ResourceStatistics.GetMemRSSBytes() == 0 {
		t.Errorf("%s", text)
	}
	_, text, r = operate(t, a, `{"type":"GET_METRICS"}`)
	if !strings.Contains(text, "slave/executors_running") || len(r.GetGetMetrics().GetMetrics()) < 20 {
		t.Errorf("%s", text)
	}
}

func TestRlimits(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	n := func(v uint64) *uint64 { return &v }
	launch := func(id string, limits ...mesos.RLimitInfo_RLimit) {
		r := runOf(true, id, "", "t-"+id)
		shell, command := true, "ulimit -Sn; ulimit -Hn; ulimit -Hc"
		r.Executor.Command = &mesos.CommandInfo{Shell: &shell, Value: &command}
		r.Executor.Container = &mesos.ContainerInfo{Type: mesos.ContainerInfo_MESOS.Enum(), RlimitInfo: &mesos.RLimitInfo{Rlimits: limits}}
		m.run(r)
	}
	launch("good", mesos.RLimitInfo_RLimit{Type: mesos.RLimitInfo_RLimit_RLMT_NOFILE, Soft: n(123), Hard: n(456)},
		mesos.RLimitInfo_RLimit{Type: mesos.RLimitInfo_RLimit_RLMT_CORE})
	m.exited("good")
	if b, err := os.ReadFile(filepath.Join(sandboxOf(t, a, "good"), "stdout")); err != nil || string(b) != "123\n456\nunlimited\n" {
		t.Errorf("%q %v", b, err)
	}
	for id, c := range map[string]struct {
		limit mesos.RLimitInfo_RLimit
		want  string
	}{
		"half":    {mesos.RLimitInfo_RLimit{Type: mesos.RLimitInfo_RLimit_RLMT_NOFILE, Soft: n(1)}, "only one of soft and hard"},
		"swapped": {mesos.RLimitInfo_RLimit{Type: mesos.RLimitInfo_RLimit_RLMT_NOFILE, Soft: n(2), Hard: n(1)}, "above hard"},
		"unknown": {mesos.RLimitInfo_RLimit{}, "unknown type"},
		"toomany": {mesos.RLimitInfo_RLimit{Type: mesos.RLimitInfo_RLimit_RLMT_NOFILE, Soft: n(1 << 40), Hard: n(1 << 40)}, "setting the limit NOFILE"},
	} {
		launch(id, c.limit)
		u := m.update("t-"+id, mesos.TASK_FAILED)
		if u.Status.GetReason() != mesos.REASON_CONTAINER_LAUNCH_FAILED || !strings.Contains(u.Status.GetMessage(), c.want) {
			t.Errorf("%s: %s %q", id, u.Status.GetReason(), u.Status.GetMessage())
		}
		m.ack(u)
	}
	m.send(link.Event{Type: link.EventShutdownFramework, ShutdownFramework: &mesos.FrameworkID{Value: "f1"}})
}
