package agent

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// checkpoints are all files of the meta directory, as patterns.
var checkpoints = map[string]string{
	"framework": "slaves/*/frameworks/f1/framework.info",
	"executor":  "slaves/*/frameworks/f1/executors/x1/executor.info",
	"tasks":     "slaves/*/frameworks/f1/executors/x1/runs/*/tasks.log",
	"container": "containers/*",
	"agent":     "slaves/*/slave.info",
	"boot":      "boot_id",
}

// damages are what a disk or a torn write can do to a file.
var damages = map[string]func([]byte) []byte{
	"empty":   func([]byte) []byte { return nil },
	"cut":     func(b []byte) []byte { return b[:len(b)/2] },
	"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	"zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
	"garbage": func([]byte) []byte { return []byte("\x00\xff{{{\n\n") },
}

// logText keeps a log, for a test to look at.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Whatever happens to a checkpoint, the next agent sets it aside, says so, and
// goes on to the master.
func TestDamagedCheckpoints(t *testing.T) {
	t.Parallel()
	for name, pattern := range checkpoints {
		for how, damage := range damages {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				m := newMaster(t)
				f := testFlags(t, m)
				log := &logText{}
				a := startAgent(t, f)
				waitRegistered(t, a)
				m.running(runOf(true, "x1", "ok", "t1"))
				quiet(t, a)
				meta := filepath.Join(a.store.Work(), "meta")
				allCovered(t, meta)
				id := processes(t, a)["x1"]
				f.Port = int(a.info.GetPort())
				f.Logger = slog.New(slog.NewTextHandler(log, nil))
				a.Kill()
				files, err := filepath.Glob(filepath.Join(meta, pattern))
				if err != nil || len(files) == 0 {
					t.Fatalf("%s: %v %v", pattern, files, err)
				}
				b, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}
				bad := damage(bytes.Clone(b))
				if err := os.WriteFile(files[0], bad, 0o600); err != nil {
					t.Fatal(err)
				}
				m.newID(newUUIDText() + "-S1") // if the old one is lost
				if name != "agent" {
					m.newID(a.id())
				}
				waitRegistered(t, startAgent(t, f))
				kept, _ := filepath.Glob(filepath.Join(meta, "damaged", "*"))
				// A log that only lacks its end is what a crash leaves, and mended in silence.
				if quiet := name == "tasks" && how != "flipped" && how != "garbage"; !quiet {
					if len(kept) != 1 || !strings.Contains(log.String(), "damaged") || !strings.Contains(log.String(), files[0]) {
						t.Errorf("set aside: %v\n%s", kept, log.String())
					} else if now, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(now, bad) {
						t.Errorf("what is kept is not what was found: %v", err)
					}
				}
				if id.Alive() && name == "container" {
					// Its record is the only way to it; the executor goes by itself
					// when the agent refuses it.
					killProcess(t, id)
				}
			})
		}
	}
}

// allCovered tells of checkpoints that the table above does not know.
func allCovered(t *testing.T, meta string) {
	t.Helper()
	err := filepath.WalkDir(meta, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		for _, pattern := range checkpoints {
			if ok, _ := filepath.Match(filepath.Join(meta, pattern), path); ok {
				return nil
			}
		}
		t.Errorf("no test damages %s", path)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The link to the latest agent is no file with a checksum.
func TestDamagedLatest(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]string{"a slash": "../x", "nothing": "no-such-agent", "dots": ".."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMaster(t)
			f := testFlags(t, m)
			a := startAgent(t, f)
			waitRegistered(t, a)
			latest := filepath.Join(a.store.Work(), "meta/slaves/latest")
			f.Port = int(a.info.GetPort())
			a.Kill()
			if err := os.Remove(latest); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, latest); err != nil {
				t.Fatal(err)
			}
			m.newID(newUUIDText() + "-S1")
			waitRegistered(t, startAgent(t, f))
			subs := m.subscriptions()
			if subs[len(subs)-1].AgentInfo.ID != nil {
				t.Error("the agent took an id up")
			}
		})
	}
}
