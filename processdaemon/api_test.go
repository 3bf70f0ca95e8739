package processdaemon

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// TestDescription: openapi.yaml has exactly the routes and the fields that the code has.
func TestDescription(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := yaml.Unmarshal(description, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for path, ops := range doc.Paths {
		for method := range ops {
			if method != "parameters" {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys((&Daemon{}).routes())); !slices.Equal(got, want) {
		t.Errorf("described: %v\nserved:    %v", got, want)
	}
	for _, v := range []any{
		protocol.Info{}, protocol.Keeper{}, protocol.About{}, protocol.Stats{}, protocol.Spec{}, protocol.Limits{}, protocol.Rlimit{}, protocol.URI{},
		protocol.FetchRequest{}, protocol.FetchEvent{}, protocol.File{}, protocol.LogFile{}, protocol.StopRequest{}, protocol.RestartRequest{},
		protocol.Reload{}, protocol.ExecRequest{}, protocol.ExecEvent{}, protocol.ExecResult{}, protocol.SessionRequest{}, protocol.SignalRequest{}, protocol.Status{}, protocol.Exit{}, protocol.Error{},
	} {
		typ := reflect.TypeOf(v)
		var want []string
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			want = append(want, name)
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(doc.Components.Schemas[typ.Name()].Properties)); !slices.Equal(got, want) {
			t.Errorf("%s: described %v, has %v", typ.Name(), got, want)
		}
	}
}

// serve lets a client talk to the daemon.
func serve(t *testing.T, d *Daemon) *client.Client {
	t.Helper()
	path := filepath.Join(testkit.PublicDir(t), "sock")
	l, err := unixhttp.Listen(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.Serve(ctx, l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	c := client.New(path)
	t.Cleanup(func() { c.Close(); cancel(); wg.Wait() })
	return c
}

// TestFaultHundredCreates: of a hundred that create and start the same id at
// once, all get the same task, and the process exists once.
func TestFaultHundredCreates(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	s := spec(d, "a", "echo ran >> ran; exec sleep 60")
	var wg sync.WaitGroup
	var mu sync.Mutex
	pids := map[int]int{}
	for range 100 {
		wg.Go(func() {
			if _, err := c.Create(t.Context(), &s); err != nil {
				t.Error(err)
				return
			}
			st, err := c.Start(t.Context(), "a", 20*time.Second)
			mu.Lock()
			defer mu.Unlock()
			if pids[st.Pid]++; err != nil || st.State != running {
				t.Errorf("%+v %v", st, err)
			}
		})
	}
	wg.Wait()
	if len(pids) != 1 {
		t.Errorf("processes: %v", pids)
	}
	eventually(t, "it ran", func() bool { return exists(filepath.Join(s.WorkPath, "ran")) })
	if got := read(t, filepath.Join(s.WorkPath, "ran")); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
	other := s
	other.StartCmd = "sleep 61"
	if _, err := c.Create(t.Context(), &other); !client.IsCode(err, protocol.CodeConflict) {
		t.Errorf("another specification: %v", err)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	s := spec(d, "a", `echo run >> runs; trap "exit 5" TERM; : > trapped; while :; do sleep 0.02; done`)
	run(t, d, s)
	before := awaitState(t, d, "a", running)
	if _, err := c.Restart(t.Context(), "unknown", 0); !client.IsCode(err, protocol.CodeNotFound) {
		t.Error(err)
	}
	for i, grace := range []time.Duration{10 * time.Second, 0} {
		// The file of the trap stays from the first run on; each run adds its line.
		eventually(t, "its trap", func() bool {
			return exists(filepath.Join(s.WorkPath, "trapped")) && read(t, filepath.Join(s.WorkPath, "runs")) == strings.Repeat("run\n", i+1)
		})
		if _, err := c.Restart(t.Context(), "a", grace); err != nil {
			t.Fatal(err)
		}
		st := await(t, d, "a", func(st protocol.Status) bool { return st.State == running && st.Restarts == i+1 })
		if st.Pid == before.Pid || st.Exit != nil || st.Failure != "" || !st.StartedAt.After(before.StartedAt) {
			t.Errorf("%+v, before %+v", st, before)
		}
		before = st
	}
	eventually(t, "three runs", func() bool { return read(t, filepath.Join(s.WorkPath, "runs")) == strings.Repeat("run\n", 3) })
	// A stop while a restart is under way is a stop.
	if _, err := c.Restart(t.Context(), "a", 10*time.Second); err != nil {
		t.Error(err)
	}
	if _, err := c.Stop(t.Context(), "a", 0); err != nil {
		t.Error(err)
	}
	st := await(t, d, "a", func(st protocol.Status) bool { return st.State == ended || st.State == running && st.Restarts > 2 })
	if st.State == running {
		// The restart was quicker than the stop, which ended the new process.
		st = awaitState(t, d, "a", ended)
	}
	if _, err := c.Restart(t.Context(), "a", 0); !client.IsCode(err, protocol.CodeConflict) {
		t.Errorf("restart of %s: %v", st.State, err)
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	s := spec(d, "a", "exec sleep 60")
	s.ReloadCmd = "echo reload >> reloads; [ -e good ] || { echo no such file >&2; exit 4; }"
	run(t, d, s)
	awaitState(t, d, "a", running)
	for i, want := range []string{"exit code 4", ""} {
		if _, err := c.Reload(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		st := await(t, d, "a", func(st protocol.Status) bool {
			return st.Reload != nil && st.Reload.Number == i+1 && !st.Reload.Running
		})
		if want == "" && st.Reload.Failure != "" || !strings.Contains(st.Reload.Failure, want) || st.State != running {
			t.Errorf("%+v", st.Reload)
		}
		write(t, filepath.Join(s.WorkPath, "good"), "", 0o644)
	}
	if got := read(t, filepath.Join(s.WorkPath, "reloads")); got != strings.Repeat("reload\n", 2) {
		t.Errorf("%q", got)
	}
	other := spec(d, "b", "exec sleep 60")
	run(t, d, other)
	if _, err := c.Reload(t.Context(), "b"); !client.IsCode(err, protocol.CodeConflict) {
		t.Errorf("without a command: %v", err)
	}
}

// TestKillCommand is run in the place of SIGTERM.
func TestKillCommand(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", `trap "exit 3" TERM; trap "exit 8" USR2; : > trapped; while :; do sleep 0.02; done`)
	s.StopCmd, s.KillCmd = "exit 1", "kill -USR2 $(cat pid)"
	st := run(t, d, s)
	write(t, filepath.Join(s.WorkPath, "pid"), strconv.Itoa(st.Pid), 0o644)
	eventually(t, "its trap", func() bool { return exists(filepath.Join(s.WorkPath, "trapped")) })
	if _, err := d.Stop("a", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if st := awaitState(t, d, "a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 8}) {
		t.Errorf("%+v", st.Exit)
	}
}

func TestLogsFollow(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.LogSize, o.LogFiles = 16<<10, 50 })
	c := serve(t, d)
	s := spec(d, "a", `i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; echo bad >&2`)
	create(t, d, s)
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- c.Logs(t.Context(), "a", "stdout", 1<<20, true, &out) }()
	if _, err := d.Start("a"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end with the task")
	}
	if !strings.HasSuffix(out.String(), "19999\n") {
		t.Errorf("%d bytes, the last %q", out.Len(), lastBytes(out.String(), 20))
	}
	out.Reset()
	if err := c.Logs(t.Context(), "a", "stderr", 100, false, &out); err != nil || out.String() != "bad\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	if err := c.Logs(t.Context(), "a", "../secret", 100, false, &out); !client.IsCode(err, protocol.CodeInvalid) {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	run(t, d, spec(d, "old", "exec sleep 60"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type change struct {
		id    string
		state protocol.State
	}
	var mu sync.Mutex
	var seen []change
	done := make(chan error, 1)
	go func() {
		done <- c.Events(ctx, "owner", nil, func(s protocol.Status) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, change{s.ID, s.State})
			return nil
		})
	}()
	saw := func(want change) {
		t.Helper()
		eventually(t, want.id+" "+string(want.state), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(seen, want)
		})
	}
	saw(change{"old", running})
	foreign := spec(d, "foreign", "exec sleep 60")
	foreign.Owner = "another"
	run(t, d, foreign)
	for range 2 {
		run(t, d, spec(d, "new", "exit 0"))
		saw(change{"new", ended})
		if err := d.Delete(t.Context(), "new"); err != nil {
			t.Fatal(err)
		}
		saw(change{"new", deleted})
		mu.Lock()
		seen = nil
		mu.Unlock()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if slices.ContainsFunc(seen, func(c change) bool { return c.id == "foreign" }) {
		t.Error("another owner's task was told")
	}
}

func TestStatsAndVersion(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.Version = "1.2.3" })
	c := serve(t, d)
	s := spec(d, "a", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; : > done; sleep 60 & wait")
	s.Limits.MemMB = 100
	run(t, d, s)
	eventually(t, "it has worked", func() bool { return exists(filepath.Join(s.WorkPath, "done")) })
	eventually(t, "two processes", func() bool {
		st, err := c.Stats(t.Context(), "a")
		return err == nil && st.Processes == 2 && st.CPUSeconds > 0 && st.MemoryBytes > 0 && st.State == running
	})
	if v, err := c.Version(t.Context()); err != nil || v != (protocol.About{Version: "1.2.3", API: "v1"}) {
		t.Errorf("%+v %v", v, err)
	}
}
