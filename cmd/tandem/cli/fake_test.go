package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/scheduler/wire"
)

// fakeBackend is a scheduler in memory. Every call of Objects is one step of
// its life: advance changes it.
type fakeBackend struct {
	mu      sync.Mutex
	objects []wire.Object
	groups  []wire.Taskgroup
	agents  []wire.Agent
	calls   []string
	advance func(f *fakeBackend)
	err     error
}

func (f *fakeBackend) step(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	if f.advance != nil {
		f.advance(f)
	}
	return f.err
}

func (f *fakeBackend) Apply(_ context.Context, raws []json.RawMessage, dryRun, _ bool) ([]wire.Change, error) {
	if err := f.step("apply %d %t", len(raws), dryRun); err != nil {
		return nil, err
	}
	var out []wire.Change
	for _, raw := range raws {
		o, err := api.DecodeObject(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, wire.Change{Ref: api.RefOf(o), Action: wire.Created})
	}
	return out, nil
}

func (f *fakeBackend) Objects(_ context.Context, k api.Kind, ns string) ([]wire.Object, error) {
	if err := f.step("objects"); err != nil {
		return nil, err
	}
	var out []wire.Object
	for _, o := range f.objects {
		if o.Kind == k && (ns == "" || o.Namespace == ns) {
			out = append(out, o)
		}
	}
	return out, nil
}

func (f *fakeBackend) Taskgroups(_ context.Context, ns string) ([]wire.Taskgroup, error) {
	if err := f.step("taskgroups"); err != nil {
		return nil, err
	}
	var out []wire.Taskgroup
	for _, g := range f.groups {
		if ns == "" || g.Namespace == ns {
			out = append(out, g)
		}
	}
	return out, nil
}

func (f *fakeBackend) Agents(context.Context) ([]wire.Agent, error) {
	return f.agents, f.step("agents")
}

func (f *fakeBackend) Events(_ context.Context, t api.Ref) ([]wire.Event, error) {
	return []wire.Event{{Time: time.Now().Add(-time.Minute), Object: t.Name, Reason: "Placed", Text: "on 127.0.0.1"}}, f.step("events")
}

func (f *fakeBackend) Scale(_ context.Context, ref api.Ref, n int) error {
	return f.step("scale %s %d", ref, n)
}

func (f *fakeBackend) Restart(_ context.Context, t target) error { return f.step("restart %s", t) }

func (f *fakeBackend) Delete(_ context.Context, ref api.Ref) error { return f.step("delete %s", ref) }

func (f *fakeBackend) Logs(_ context.Context, id, task string, o logOptions) (io.ReadCloser, error) {
	text := fmt.Sprintf("%s %s\nno end", strings.SplitN(id, ".", 2)[0], task)
	return io.NopCloser(strings.NewReader(text)), f.step("logs %s %+v", task, o)
}

func (f *fakeBackend) LogFiles(_ context.Context, id, task string) ([]api.LogFile, error) {
	return []api.LogFile{{Name: "own.log", Size: 5, Modified: time.Unix(1e9, 0)}}, f.step("logfiles %s", task)
}

func (f *fakeBackend) did(call string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == call {
			return true
		}
	}
	return false
}

// with runs a command line against a backend.
func with(t *testing.T, b backend, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	s := Streams{In: strings.NewReader(stdin), Out: &out, Err: &errOut, Getenv: func(string) string { return "" }}
	a := newApp(s)
	a.connect = func(string) (backend, error) { return b, nil }
	code := a.execute(context.Background(), args, s)
	return result{code, out.String(), errOut.String()}
}

const webRaw = `{"kind":"application","apiVersion":"v4","metadata":{"name":"web","namespace":"test"},"spec":{"instance":2,"template":{"spec":{"containers":[{"image":"busybox","resources":{"limits":{"cpu":"1"}}}],"networkMode":"HOST"}}}}`

func webRef() api.Ref { return api.Ref{Kind: "application", Namespace: "test", Name: "web"} }

// webStack is an application with two taskgroups, one of which runs.
func webStack() *fakeBackend {
	created := time.Now().Add(-30 * time.Second)
	code := 3
	return &fakeBackend{
		objects: []wire.Object{
			{Ref: webRef(), Raw: json.RawMessage(webRaw), Created: created, Status: &wire.Status{Desired: 2, Current: 2, Running: 1, Ready: 1, UpToDate: 2, Message: "1 of 2 run"}},
			{Ref: api.Ref{Kind: "service", Namespace: "test", Name: "web"}, Raw: json.RawMessage(goodService), Created: created},
		},
		groups: []wire.Taskgroup{
			{ID: "0.web.test.c.1", Name: "web-0", Namespace: "test", Owner: webRef(), State: "RUNNING", Ready: true, Agent: "127.0.0.1", Created: created,
				Tasks: []wire.Task{{ID: "1.0.0.web.test.c", Name: "main", Kind: api.TaskContainer, State: "RUNNING", Ports: []api.TaskPort{{Name: "http", ContainerPort: 80, HostPort: 31000, Protocol: "tcp"}},
					Report: &api.TaskReport{Pid: 77, ContainerID: "0123456789abcdef", Sandbox: "/sandbox"}}}},
			{ID: "1.web.test.c.1", Name: "web-1", Namespace: "test", Owner: webRef(), State: "FAILED", Agent: "127.0.0.2", Created: created, Restarts: 4,
				Tasks: []wire.Task{{ID: "1.0.1.web.test.c", Name: "main", Kind: api.TaskContainer, State: "FAILED", Message: "exit code 3",
					Report: &api.TaskReport{ExitCode: &code, Output: "one\ntwo\x1b[31m\n"}}}},
		},
		agents: []wire.Agent{{ID: "S0", Hostname: "127.0.0.1", State: "active", Attributes: map[string]string{"zone": "a", "rack": "r1"},
			Total: api.TaskResources{CPUs: 4, MemMB: 4096, DiskMB: 1000}, Used: api.TaskResources{CPUs: 1.5, MemMB: 128}, Ports: "1/1000", Taskgroups: 1}},
	}
}

func TestWithFake(t *testing.T) {
	t.Parallel()
	if r := with(t, webStack(), "", "version"); r.code != exit.OK {
		t.Errorf("%+v", r)
	}
}
