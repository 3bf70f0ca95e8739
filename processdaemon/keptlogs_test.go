package processdaemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// deleteEnded deletes a task once it has ended by itself.
func deleteEnded(t *testing.T, d *Daemon, id string) {
	t.Helper()
	awaitState(t, d, id, ended)
	if err := d.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// numbers are the lines from one to another.
func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestLogsAreKeptInTheSandbox: what a task wrote to the files of its logPath is in its sandbox
// once it is deleted, pieces included, and nothing else is.
func TestLogsAreKeptInTheSandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.LogSize, o.LogFiles = 64<<10, 10 })
	victim := filepath.Join(testkit.PublicDir(t), "victim")
	write(t, victim, "secret", 0o644)
	s := spec(d, "a", `mkdir log; cd log; seq 1 30000 >>app.log; echo x >other.txt; echo old >old.log; touch -d @1000 old.log; ln -s `+victim+` link.log; mkfifo pipe.log; : >empty.log; exit 3`)
	s.LogPath = "log/*.log"
	if os.Getuid() == 0 {
		s.User = "nobody"
	}
	kept := filepath.Join(s.Sandbox, protocol.KeptLogs)
	// Half of a copy, which a daemon left that was killed.
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(kept, "app.log"), "half", 0o644)
	run(t, d, s)
	deleteEnded(t, d, "a")
	if got, want := read(t, filepath.Join(kept, "app.log")), numbers(1, 30000); got != want {
		t.Errorf("%d bytes, want %d; they end with %q", len(got), len(want), lastBytes(got, 20))
	}
	entries, err := os.ReadDir(kept)
	if err != nil || len(entries) != 2 || entries[0].Name() != "app.log" || entries[1].Name() != "empty.log" {
		t.Errorf("%v %v", entries, err)
	}
	before, err := os.Stat(filepath.Join(s.WorkPath, "log/app.log"))
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(filepath.Join(kept, "app.log")); err != nil || after.ModTime().Unix() != before.ModTime().Unix() {
		t.Errorf("times: %v %v %v", after, before, err)
	}
}

// TestKeptLogsAreTheEnds: of a long file the end is kept, from the beginning of a line; of many
// those that were written to last, up to a sum.
func TestKeptLogsAreTheEnds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	// 5 MiB each, in lines of 16 bytes.
	s := spec(d, "a", `mkdir log; for i in 5 4 3 2 1; do seq -f %015.0f 1 327680 >log/$i.log; touch -d "+$((5-i)) sec" log/$i.log; done`)
	s.LogPath = "log"
	run(t, d, s)
	deleteEnded(t, d, "a")
	kept := filepath.Join(s.Sandbox, protocol.KeptLogs)
	for i := 1; i <= 4; i++ {
		text := read(t, filepath.Join(kept, fmt.Sprint(i, ".log")))
		if !strings.HasSuffix(text, fmt.Sprintf("%015d\n", 327680)) || len(text)%16 != 0 || len(text) > keptOfFile || len(text) < keptOfFile-32 {
			t.Errorf("%d.log: %d bytes, that end with %q", i, len(text), lastBytes(text, 20))
		}
	}
	if entries, err := os.ReadDir(kept); err != nil || len(entries) != 4 {
		t.Errorf("%v %v", entries, err)
	}
}

// TestFaultLogsThatCannotBeKept: what the task's user has put in the way is not followed, and
// the task is deleted all the same.
func TestFaultLogsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	elsewhere := testkit.PublicDir(t)
	for name, put := range map[string]func(at string) error{
		"file":         func(at string) error { return os.WriteFile(at, nil, 0o644) },
		"link":         func(at string) error { return os.Symlink(elsewhere, at) },
		"link beneath": func(at string) error { return os.Symlink("inside", at) },
		"directory of another": func(at string) error {
			if err := os.Mkdir(at, 0o755); err != nil || os.Getuid() != 0 {
				return os.Chmod(at, 0o777)
			}
			return os.Chown(at, 65534, 65534)
		},
	} {
		id := strings.ReplaceAll(name, " ", "-")
		s := spec(d, id, "echo x >app.log")
		s.LogPath = "app.log"
		inside := filepath.Join(s.Sandbox, "inside")
		if err := os.MkdirAll(inside, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(inside, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := put(filepath.Join(s.Sandbox, protocol.KeptLogs)); err != nil {
			t.Fatal(err)
		}
		run(t, d, s)
		deleteEnded(t, d, id)
		for _, dir := range []string{elsewhere, inside} {
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("%s: %s holds %v %v", name, dir, entries, err)
			}
		}
	}
}
