package processdaemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"tandem/processdaemon/protocol"
)

// pieces reads what was written to an output file, the oldest first.
func pieces(t *testing.T, sandbox string) string {
	t.Helper()
	root, err := os.OpenRoot(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	all, err := piecesOf(root, "stdout")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	place := int64(0)
	for _, p := range append(all, outputPiece{name: "stdout"}) {
		text, err := os.ReadFile(filepath.Join(sandbox, p.name))
		if err != nil {
			t.Fatal(err)
		}
		if p.name != "stdout" && p.begin != place {
			t.Errorf("piece %s begins at %d, want %d", p.name, p.begin, place)
		}
		place += int64(len(text))
		b.Write(text)
	}
	return b.String()
}

// TestRotationLosesNothing: a process that writes all the time, its files cut
// again and again; together they are what it wrote, where the kernel can do it.
func TestRotationLosesNothing(t *testing.T) {
	t.Parallel()
	const keep = 500
	d := newDaemon(t, func(o *Options) { o.LogSize, o.LogFiles = 32<<10, keep })
	s := spec(d, "a", `i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done; exec sleep 60`)
	run(t, d, s)
	eventually(t, "all was written", func() bool { return strings.HasSuffix(read(t, filepath.Join(s.Sandbox, "stdout")), "59999\n") })
	eventually(t, "it was cut", func() bool {
		// A piece gets its name a moment after it was cut off.
		return exists(filepath.Join(s.Sandbox, pieceName("stdout", 0))) && sizeOf(filepath.Join(s.Sandbox, "stdout")) <= 32<<10 && !exists(filepath.Join(s.Sandbox, "stdout"+cuttingEnd))
	})
	f, err := os.OpenFile(filepath.Join(s.Sandbox, "stdout"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lossless := canCollapse(f, 4096)
	want := -1
	for line := range strings.Lines(pieces(t, s.Sandbox)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || lossless && n != want+1 || n <= want {
			t.Fatalf("after %d came %q (lossless: %v)", want, line, lossless)
		}
		want = n
	}
	if want != 59999 {
		t.Errorf("the last is %d", want)
	}
	tail, err := d.Tail("a", 20000)
	if err != nil || len(tail) < 19000 || !strings.HasSuffix(tail, "59999") {
		t.Errorf("the tail has %d bytes, %v", len(tail), err)
	}
}

// TestRotationKeepsSoMany pieces and no more, also for a quiet file that begins again.
func TestRotationKeepsSoMany(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.LogSize, o.LogFiles = 8<<10, 2 })
	s := spec(d, "a", `while :; do read x <&3 || sleep 0.02; [ -e go ] && { rm go; head -c 60000 /dev/zero; : > done; }; done 3</dev/null`)
	run(t, d, s)
	for round := range 3 {
		if round == 2 {
			// Long enough that the file is left to its watch.
			eventually(t, "the file is quiet", func() bool {
				d.rotator.mu.Lock()
				defer d.rotator.mu.Unlock()
				return len(d.rotator.active) == 0
			})
		}
		write(t, filepath.Join(s.WorkPath, "go"), "", 0o644)
		eventually(t, "written", func() bool { return exists(filepath.Join(s.WorkPath, "done")) })
		os.Remove(filepath.Join(s.WorkPath, "done"))
		eventually(t, "cut", func() bool { return sizeOf(filepath.Join(s.Sandbox, "stdout")) <= 8<<10 })
	}
	// The file is short a moment before its head has its name and the oldest piece is gone.
	var names []string
	eventually(t, "no cut is under way", func() (over bool) {
		d.rotator.cutting.RLock()
		defer d.rotator.cutting.RUnlock()
		root, err := os.OpenRoot(s.Sandbox)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		names, err = filepath.Glob(filepath.Join(s.Sandbox, "*stdout*"))
		return err == nil && !isCut(root, "stdout")
	})
	if len(names) != 3 {
		t.Errorf("%v", names)
	}
}

// TestFaultFullDiskBlocksNobody: on a full disk older output goes, the process
// runs on, and its newest output is there.
func TestFaultFullDiskBlocksNobody(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.LogSize, o.LogFiles = 256<<10, 3 })
	s := spec(d, "a", `i=0; while :; do echo $i 0123456789012345678901234567890123456789; i=$((i+1)); [ -e stop ] && exit 0; done 2>/dev/null`)
	if err := os.MkdirAll(s.Sandbox, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", s.Sandbox, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(s.Sandbox, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run(t, d, s)
	var rounds [2]string
	for i := range rounds {
		eventually(t, "it writes on", func() bool {
			text, _ := d.Tail("a", 200)
			line := text[strings.LastIndexByte(text, '\n')+1:]
			rounds[i], _, _ = strings.Cut(line, " ")
			return rounds[i] != "" && rounds[i] != rounds[0] || i == 0 && rounds[i] != ""
		})
	}
	time.Sleep(2 * rotateTick) // not to wait for anything: to let the disk fill up some times
	write(t, filepath.Join(s.WorkPath, "stop"), "", 0o644)
	if st := awaitState(t, d, "a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true}) {
		t.Errorf("%+v %+v", st, st.Exit)
	}
}

// TestRotationIsNotFooled: the task's user owns the directory and puts a link in
// the file's place.
func TestRotationIsNotFooled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	text := strings.Repeat("x", 100<<10)
	write(t, victim, text, 0o644)
	for _, put := range []func(string) error{
		func(p string) error { return os.Symlink(victim, p) },
		func(p string) error { return syscall.Mkfifo(p, 0o644) },
		func(p string) error { return os.Mkdir(p, 0o755) },
	} {
		path := filepath.Join(dir, "stdout")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if sizeOf(path) != 0 {
			t.Error("it has a size")
		}
		if n, err := rotateFile(dir, "stdout", 64<<10, 1); err == nil || n != 0 {
			t.Errorf("%d %v", n, err)
		}
		os.RemoveAll(path)
	}
	// A link in a piece's place is replaced, not followed.
	write(t, filepath.Join(dir, "stdout"), text, 0o644)
	for _, name := range []string{pieceName("stdout", 0), "stdout" + cuttingEnd, ".tandem-rotate-stdout"} {
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rotateFile(dir, "stdout", 64<<10, 2); err != nil {
		t.Error(err)
	}
	if read(t, victim) != text {
		t.Error("the victim was written to")
	}
	if st, err := os.Lstat(filepath.Join(dir, pieceName("stdout", 0))); err != nil || !st.Mode().IsRegular() {
		t.Error(fmt.Sprint(st), err)
	}
}

// A kill in the middle of a cut, before or after the kernel has done it, is settled by
// the next one: nothing is there twice and every place is right.
func TestRotationIsSettledAfterAKill(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		dir := t.TempDir()
		var text strings.Builder
		for i := range 4000 {
			fmt.Fprintln(&text, i)
		}
		all := text.String()
		// What a daemon has left that was killed.
		const head = 8 << 10
		write(t, filepath.Join(dir, "stdout"+cuttingEnd), all[:head], 0o644)
		present := all
		if done {
			present = all[head:]
		}
		write(t, filepath.Join(dir, "stdout"), present, 0o644)
		if _, err := rotateFile(dir, "stdout", 8<<10, 5); err != nil {
			t.Fatal(err)
		}
		if got := pieces(t, dir); got != all {
			t.Errorf("the cut was done: %v; %d bytes, want %d", done, len(got), len(all))
		}
		if exists(filepath.Join(dir, "stdout"+cuttingEnd)) {
			t.Error("it is not settled")
		}
	}
}

// Without pieces the place of what follows is kept all the same.
func TestRotationKeepsThePlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "stdout")
	total := int64(0)
	for range 3 {
		write(t, path, strings.Repeat("x", 10<<10), 0o644)
		cut, err := rotateFile(dir, "stdout", 8<<10, 0)
		if err != nil {
			t.Fatal(err)
		}
		total += cut
		names, err := filepath.Glob(path + ".*")
		if err != nil || len(names) != 1 || names[0] != filepath.Join(dir, pieceName("stdout", total)) || sizeOf(names[0]) != 0 {
			t.Errorf("%v %v", names, err)
		}
	}
}

// TestDivide: the parts are the whole head; they can be cut off one by one; no more
// are copied than are kept, and none is much longer than the limit.
func TestDivide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SampledFrom([]int64{1, 512, 4096}).Draw(t, "block")
		head := rapid.Int64Range(1, 1<<20).Draw(t, "blocks") * block
		first := rapid.Int64Range(0, head).Draw(t, "first")
		limit := rapid.Int64Range(1, 1<<24).Draw(t, "limit")
		keep := rapid.IntRange(0, 5).Draw(t, "keep")
		parts := divide(first, head, limit, keep, block)
		sum := int64(0)
		for i, n := range parts {
			sum += n
			if n < 0 || n == 0 && i > 0 || n%block != 0 {
				t.Fatalf("part %d has %d bytes: %v", i, n, parts)
			}
			if i > 0 && n >= 2*max(limit, block)+int64(keep+1)*block {
				t.Fatalf("part %d is far beyond the limit %d: %v", i, limit, parts)
			}
		}
		if sum != head || len(parts)-1 > keep {
			t.Fatalf("%d bytes of %d in %d parts, %d are kept: %v", sum, head, len(parts), keep, parts)
		}
		if keep > 0 && head-first > block && len(parts) < 2 {
			t.Fatalf("nothing is copied: %v", parts)
		}
	})
}

// TestReaderSettlesAKilledCut: whoever reads before the next cut finds every byte at its place, too.
func TestReaderSettlesAKilledCut(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		dir := t.TempDir()
		const older, head = "older\n", "head\n"
		write(t, filepath.Join(dir, pieceName("stdout", 100)), older, 0o644)
		write(t, filepath.Join(dir, "stdout"+cuttingEnd), head, 0o644)
		rest := "and the rest\n"
		if present := head + rest; done {
			write(t, filepath.Join(dir, "stdout"), rest, 0o644)
		} else {
			write(t, filepath.Join(dir, "stdout"), present, 0o644)
		}
		r := newRotator(1<<20, 3, logTo(t))
		var got strings.Builder
		at := int64(0)
		for buf := make([]byte, 1000); ; {
			n, next, err := r.readAt(filepath.Join(dir, "stdout"), at, buf)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			got.Write(buf[:n])
			at = next
		}
		r.in.Close()
		if want := older + head + rest; got.String() != want || at != 100+int64(len(want)) {
			t.Errorf("the cut was done: %v; %q up to %d", done, got.String(), at)
		}
	}
}

// TestLastLookComesAfterTheEnd: a task that ends while its output is looked at has it
// looked at once more, for what it wrote meanwhile.
func TestLastLookComesAfterTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const limit = 8 << 10
	path := filepath.Join(dir, "stdout")
	more := strings.Repeat("x", 10*limit)
	write(t, path, more, 0o644)
	r := newRotator(limit, 2, logTo(t))
	defer r.in.Close()
	r.add(dir)
	f := r.byPath[path]
	r.cutting.RLock()
	var looking sync.WaitGroup
	looking.Go(func() { r.look(f) })
	eventually(t, "it waits to cut", func() bool {
		free := r.cutting.TryRLock()
		if free {
			r.cutting.RUnlock()
		}
		return !free
	})
	r.last(dir)
	r.cutting.RUnlock()
	looking.Wait()
	write(t, path, more, 0o644)
	r.lookAll()
	if size := sizeOf(path); size > limit {
		t.Errorf("%d bytes stay", size)
	}
	if n, _ := r.lookAll(); n != 0 {
		t.Errorf("%d files are looked at although their task has ended", n)
	}
}
