package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/internal/archive/archivetest"
	"tandem/processdaemon/protocol"
)

// TestNamesThatAreNotUTF8: archives made elsewhere have them; they are merged, and
// known again, like any other.
func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{OutputAge: time.Nanosecond})
	dir := t.TempDir()
	latin := "stra\xdfe/gr\xfc\xdfe"
	for file, content := range map[string]string{"a.tar": "1", "b.tar": "2"} {
		b := archivetest.Tar(t, archivetest.Entry{Name: strings.Repeat("x", len(latin)), Body: content})
		// The writer of package tar would refuse the name.
		put(t, filepath.Join(dir, file), string(renamed(b, latin)))
	}
	out := filepath.Join(dir, "work/out")
	for name, content := range map[string]string{"a.tar": "1", "b.tar": "2"} {
		if _, err := f.Provide(t.Context(), protocol.URI{Value: filepath.Join(dir, name), OutputDir: out}, "", nil, nil); err != nil {
			t.Fatal(err)
		}
		want(t, filepath.Join(out, latin), content)
	}
	// A local file may have such a name, and so may what a merge remembers.
	plain := filepath.Join(dir, "gr\xfcn")
	put(t, plain, "3")
	if _, err := f.Provide(t.Context(), protocol.URI{Value: plain, OutputDir: out}, "", nil, nil); err != nil {
		t.Fatal(err)
	}
	want(t, filepath.Join(out, "gr\xfcn"), "3")
	before := mergeRecord{Steps: []step{{Name: name(latin), Inode: 1}}}
	var after mergeRecord
	if b, err := before.bytes(); err != nil || json.Unmarshal(b, &after) != nil || after.Steps[0] != before.Steps[0] {
		t.Errorf("%+v became %+v: %v", before, after, err)
	}
	f.CollectOutputs(filepath.Join(dir, "work"))
	if _, err := os.Lstat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not known again: %v", err)
	}
	leftNothing(t, f)
}

// renamed gives the first entry of a tar archive another name.
func renamed(b []byte, name string) []byte {
	const at, size, checksum = 0, 100, 148
	copy(b[at:at+size], make([]byte, size))
	copy(b[at:], name)
	copy(b[checksum:], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[checksum:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// TestOutputInUseIsWaitedFor: no longer than its own time, and told.
func TestOutputInUseIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tool"), "x")
	u := protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: filepath.Join(dir, "out")}
	unlock, free := f.tryLockOutput(u.OutputDir)
	if !free {
		t.Fatal("locked")
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := func(text string) {
		if strings.HasPrefix(text, "waiting for another task that fetches into ") {
			cancel()
		}
	}
	if _, err := f.Provide(ctx, u, "", nil, told); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	unlock()
	if _, err := f.Provide(t.Context(), u, "", nil, told); err != nil {
		t.Error(err)
	}
	if len(f.outputs) != 0 {
		t.Errorf("locks left: %v", f.outputs)
	}
}

// TestTwoTasksOneOutput: at the same time, with the same content and with others.
func TestTwoTasksOneOutput(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	out := filepath.Join(dir, "work/out")
	var wg sync.WaitGroup
	for i := range 9 {
		src := filepath.Join(dir, fmt.Sprintf("%d.tar", i%3))
		if i < 3 {
			put(t, src, string(archivetest.Tar(t, archivetest.Entry{Name: fmt.Sprintf("own-%d", i), Body: "x"}, archivetest.Entry{Name: "both", Body: "x"})))
		}
		wg.Go(func() {
			if _, err := f.Provide(t.Context(), protocol.URI{Value: src, OutputDir: out}, "", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := tree(t, out); got != "./ both=x own-0=x own-1=x own-2=x" {
		t.Error(got)
	}
	if e, err := os.ReadDir(filepath.Dir(out)); err != nil || len(e) != 1 || len(f.outputs) != 0 {
		t.Errorf("left: %v %v %v", e, err, f.outputs)
	}
	leftNothing(t, f)
}

// TestProgressOfUnpackingIsTold: in entries and bytes, not too often.
func TestProgressOfUnpackingIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tell time.Duration
		last string
	}{{time.Nanosecond, ": 3 entries, 1.5 MB (100%)"}, {time.Hour, ""}} {
		f := newFetcher(t, Limits{Tell: c.tell})
		dir := t.TempDir()
		a := filepath.Join(dir, "a.tar")
		put(t, a, string(archivetest.Tar(t, archivetest.Entry{Name: "d/", Type: '5'}, archivetest.Entry{Name: "d/big", Body: strings.Repeat("x", 1_500_000)}, archivetest.Entry{Name: "e"})))
		var told []string
		if _, err := f.Provide(t.Context(), protocol.URI{Value: a, OutputDir: filepath.Join(dir, "out")}, "", nil, func(text string) {
			if strings.HasPrefix(text, "unpacking ") {
				told = append(told, text)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if c.last == "" && len(told) > 0 || c.last != "" && (len(told) == 0 || told[len(told)-1] != "unpacking "+a+c.last) {
			t.Errorf("%v: %q", c.tell, told)
		}
	}
}
