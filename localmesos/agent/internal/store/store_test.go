package store

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/procid"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRecordsComeBack(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := s.Agent(); !errors.Is(err, ErrMissing) {
		t.Errorf("no agent: %v", err)
	}
	info := &mesos.AgentInfo{Hostname: "h", ID: &mesos.AgentID{Value: "a"}}
	yes := true
	fw := &mesos.FrameworkInfo{ID: &mesos.FrameworkID{Value: "f"}, Name: "n", Checkpoint: &yes}
	r := Run{Agent: "a", Framework: "f", Executor: "x 1", Container: "c"}
	for _, err := range []error{
		s.SaveAgent(info), s.SaveAgent(info), s.SaveBootID("b"), s.SaveFramework("a", fw),
		s.SaveExecutor(r, Executor{Info: &mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: "x 1"}}, Container: "c", Generated: true}),
		s.MakeRun(r), s.SaveContainer(Container{Run: r, Process: procid.Identity{Pid: 7, BootID: "b"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Agent(); err != nil || got.Hostname != "h" || got.GetID().GetValue() != "a" {
		t.Errorf("agent: %v %v", got, err)
	}
	if b, err := s.BootID(); b != "b" || err != nil {
		t.Errorf("boot: %q %v", b, err)
	}
	if got, err := s.Framework("a", "f"); err != nil || !got.GetCheckpoint() || got.Name != "n" {
		t.Errorf("framework: %v %v", got, err)
	}
	if e, err := s.Executor("a", "f", "x 1"); err != nil || !e.Generated || e.Subscribed || e.Container != "c" {
		t.Errorf("executor: %+v %v", e, err)
	}
	if err := os.WriteFile(s.TaskLog(r), nil, 0o600); err != nil {
		t.Errorf("the log of tasks has no place: %v", err)
	}
	if c, err := s.Containers(); err != nil || len(c) != 1 || c[0].Process.Pid != 7 || c[0].Run != r {
		t.Errorf("containers: %+v %v", c, err)
	}
	if err := s.RemoveContainer("c"); err != nil {
		t.Error(err)
	}
	if err := s.RemoveFrameworks("a"); err != nil {
		t.Error(err)
	}
	if ids, err := s.Frameworks("a"); err != nil || len(ids) != 0 {
		t.Errorf("frameworks: %v %v", ids, err)
	}
	if err := s.ForgetAgent(); err != nil {
		t.Error(err)
	}
	if _, err := s.Agent(); !errors.Is(err, ErrMissing) {
		t.Errorf("forgotten agent: %v", err)
	}
}

func TestDamageIsSetAside(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := s.SaveBootID("boot"); err != nil {
		t.Fatal(err)
	}
	path := s.meta() + "/boot_id"
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		b := []byte(string(good))
		b[i] ^= 0x20
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		// Hexadecimal digits may be of either case.
		if id, err := s.BootID(); !errors.Is(err, ErrMissing) && id != "boot" {
			t.Errorf("byte %d: %q %v", i, id, err)
		}
	}
}

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", ".", "..", "a/b", `a\b`, "a\n", "a\x00", strings.Repeat("x", 256), ".tmp-x", "x.damaged-1"} {
		if CheckID("task", bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{"a", "0.web.default.local.1", "a b", "ä", "-", strings.Repeat("x", 255)} {
		if err := CheckID("task", good); err != nil {
			t.Error(err)
		}
	}
}
