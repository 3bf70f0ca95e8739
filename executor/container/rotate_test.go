package container

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// written returns all that is left of a log, the oldest first.
func written(t interface{ Fatal(...any) }, dir, name string) string {
	files, err := filepath.Glob(filepath.Join(dir, name+".*"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(files)
	var b strings.Builder
	for _, f := range append(files, filepath.Join(dir, name)) {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// TestRotationKeepsEveryByte: whatever is written, in whatever pieces and over
// restarts, is there once and in order as far back as files are kept, files begin
// with a line, and their names tell their place.
func TestRotationKeepsEveryByte(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		size, keep := rapid.Int64Range(1, 60).Draw(rt, "size"), rapid.IntRange(0, 3).Draw(rt, "keep")
		var all strings.Builder
		var l *logFile
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 25), 1, 40).Draw(rt, "lengths") {
			if l == nil || n == 13 { // a restart now and then
				l.Close()
				if l, err = openLog(dir, "stdout", size, keep); err != nil {
					rt.Fatal(err)
				}
			}
			line := fmt.Sprintf("%d%s\n", i, strings.Repeat("x", n))
			all.WriteString(line)
			for _, part := range []string{line[:n/2], line[n/2:]} {
				if _, err := l.Write([]byte(part)); err != nil {
					rt.Fatal(err)
				}
			}
		}
		l.Close()
		left := written(rt, dir, "stdout")
		if !strings.HasSuffix(all.String(), left) {
			rt.Fatalf("%q is not the end of %q", left, all.String())
		}
		files, _ := filepath.Glob(filepath.Join(dir, "stdout.*"))
		if len(files) > keep {
			rt.Fatalf("%d files kept, not %d", len(files), keep)
		}
		for _, f := range files {
			var begin int
			if _, err := fmt.Sscanf(filepath.Base(f), "stdout.%d", &begin); err != nil {
				rt.Fatal(err)
			}
			text, _ := os.ReadFile(f)
			if !strings.HasPrefix(all.String()[begin:], string(text)) {
				rt.Fatalf("%s holds %q, not what is written at %d", f, text, begin)
			}
		}
	})
}

// TestRotationOnTheEngine: a container that writes much loses no line, neither
// in our rotation nor in the engine's, whose own files stay small.
func TestRotationOnTheEngine(t *testing.T) {
	t.Parallel()
	const lines = 300_000
	f := newFixture(t, func(o *Options) { o.LogSize, o.LogFiles = 1<<20, 1000 })
	task := f.task(fmt.Sprintf("seq 1 %d", lines))
	s := f.launch(task)
	if exit, _ := f.finish(task); exit.Code != 0 {
		t.Fatalf("%+v", exit)
	}
	out := written(t, task.Sandbox, "stdout")
	next := 1
	for line := range strings.Lines(out) {
		if want := fmt.Sprintf("%d\n", next); line != want {
			t.Fatalf("line %d is %q", next, line)
		}
		next++
	}
	if next != lines+1 {
		t.Errorf("%d lines of %d", next-1, lines)
	}
	c, err := docker.ContainerInspect(f.ctx(), s.ContainerID)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	files, _ := filepath.Glob(c.LogPath + "*")
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			total += info.Size()
		}
	}
	if len(files) == 0 || total > 20<<20 {
		t.Errorf("the engine's own log has %d bytes in %d files", total, len(files))
	}
}
