package scheduler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// serveDir is an agent's files API over a directory; between is called before
// each answer, so that a test can change the directory at any moment.
func serveDir(t *testing.T, between func()) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		between()
		path := r.URL.Query().Get("path")
		if r.URL.Path == "/files/browse" {
			entries, err := os.ReadDir(path)
			if err != nil {
				http.NotFound(w, r)
				return
			}
			list := []map[string]any{}
			for _, e := range entries {
				if info, err := e.Info(); err == nil {
					list = append(list, map[string]any{"path": filepath.Join(path, e.Name()), "size": info.Size()})
				}
			}
			_ = json.NewEncoder(w).Encode(list)
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		length, _ := strconv.Atoi(r.URL.Query().Get("length"))
		if offset < 0 {
			_ = json.NewEncoder(w).Encode(map[string]any{"data": "", "offset": len(text)})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": string(text[min(offset, len(text)):min(offset+length, len(text))]), "offset": offset})
	}))
	t.Cleanup(srv.Close)
	return srv
}

// rotating writes lines to a file as an executor does.
type rotating struct {
	t                 *testing.T
	dir               string
	begin, size, next int
	keep              int
	old               []string
}

func (l *rotating) write(line string) {
	name := filepath.Join(l.dir, "stdout")
	if l.size+len(line) > 40 {
		l.rotate()
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(line); err != nil {
		l.t.Error(err)
	}
	l.size += len(line)
}

func (l *rotating) rotate() {
	to := filepath.Join(l.dir, fmt.Sprintf("stdout.%012d", l.begin))
	if err := os.Rename(filepath.Join(l.dir, "stdout"), to); err != nil {
		l.t.Error(err)
	}
	l.begin, l.size = l.begin+l.size, 0
	if l.old = append(l.old, to); len(l.old) > l.keep {
		if err := os.Remove(l.old[0]); err != nil {
			l.t.Error(err)
		}
		l.old = l.old[1:]
	}
}

// TestLogIsFollowedOverRotations: a rotation at any moment, between any two
// answers of the agent, neither loses nor repeats a line.
func TestLogIsFollowedOverRotations(t *testing.T) {
	t.Parallel()
	for every := 1; every <= 4; every++ {
		l := &rotating{t: t, dir: t.TempDir(), keep: 1000}
		calls := 0
		srv := serveDir(t, func() {
			if calls++; calls%every == 0 && l.next < 300 {
				l.write(fmt.Sprintf("line %d\n", l.next))
				l.next++
			}
		})
		src := &logSource{agent: srv.URL, path: filepath.Join(l.dir, "stdout")}
		l.write("begin\n")
		var got strings.Builder
		at := int64(0)
		for idle := 0; idle < 3; {
			piece, from, err := src.readAt(t.Context(), at, logChunk)
			if err != nil {
				t.Fatal(err)
			}
			if from != at {
				t.Fatalf("jumped from %d to %d", at, from)
			}
			got.Write(piece)
			at += int64(len(piece))
			if len(piece) == 0 && l.next >= 300 {
				idle++
			}
		}
		var want strings.Builder
		want.WriteString("begin\n")
		for i := range 300 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		if got.String() != want.String() {
			t.Errorf("a line every %d calls: got %d bytes, want %d", every, got.Len(), want.Len())
		}
	}
}

// beheaded is a file that is written to all the time, and whose head is cut off in
// steps, as the process daemon does.
type beheaded struct {
	t           *testing.T
	dir         string
	begin, next int
	head        []byte
	stage       int
}

// step does the next thing: a line, or one step of a cut.
func (b *beheaded) step(lines int) {
	file := filepath.Join(b.dir, "stdout")
	text, err := os.ReadFile(file)
	if err != nil {
		b.t.Error(err)
		return
	}
	switch b.stage {
	case 0:
		if len(text) < 40 {
			if b.next < lines {
				err = os.WriteFile(file, fmt.Appendf(text, "line %d\n", b.next), 0o644)
				b.next++
			}
			break
		}
		// A head may end within a line, and never has all.
		b.head, b.stage = text[:30], 1
		err = os.WriteFile(file+".cutting", b.head, 0o644)
	case 1:
		b.stage = 2
		err = os.WriteFile(file, text[len(b.head):], 0o644)
	case 2:
		b.stage = 0
		err = os.Rename(file+".cutting", fmt.Sprintf("%s.%012d", file, b.begin))
		b.begin += len(b.head)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// TestLogIsFollowedOverCuts: the steps of a cut come between any two answers of the
// agent, and neither lose nor repeat a byte.
func TestLogIsFollowedOverCuts(t *testing.T) {
	t.Parallel()
	const lines = 40
	for every := 1; every <= 4; every++ {
		t.Run(strconv.Itoa(every), func(t *testing.T) {
			t.Parallel()
			b := &beheaded{t: t, dir: t.TempDir()}
			if err := os.WriteFile(filepath.Join(b.dir, "stdout"), []byte("begin\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			calls := 0
			srv := serveDir(t, func() {
				if calls++; calls%every == 0 {
					b.step(lines)
				}
			})
			src := &logSource{agent: srv.URL, path: filepath.Join(b.dir, "stdout")}
			var got, want strings.Builder
			at := int64(0)
			for idle := 0; idle < 10; {
				piece, from, err := src.readAt(t.Context(), at, logChunk)
				if err != nil || from != at {
					t.Fatalf("jumped from %d to %d: %v", at, from, err)
				}
				got.Write(piece)
				at += int64(len(piece))
				if len(piece) == 0 && b.next >= lines {
					idle++
				}
			}
			want.WriteString("begin\n")
			for i := range lines {
				fmt.Fprintf(&want, "line %d\n", i)
			}
			if got.String() != want.String() {
				t.Errorf("got:\n%s", got.String())
			}
		})
	}
}

// TestLogThatIsPartlyGone: what is no longer there is passed over and counted,
// and the last lines are found in the files of before.
func TestLogThatIsPartlyGone(t *testing.T) {
	t.Parallel()
	l := &rotating{t: t, dir: t.TempDir(), keep: 2}
	var all strings.Builder
	for i := range 50 {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		l.write(line)
	}
	src := &logSource{agent: serveDir(t, func() {}).URL, path: filepath.Join(l.dir, "stdout")}
	piece, at, err := src.readAt(t.Context(), 0, logChunk)
	if err != nil || at == 0 || !strings.HasPrefix(all.String()[at:], string(piece)) || len(piece) == 0 {
		t.Errorf("%q at %d, %v", piece, at, err)
	}
	for lines, want := range map[int]int{0: 0, 1: 1, 7: 7} {
		at, err := src.tailOffset(t.Context(), lines)
		if err != nil || strings.Count(all.String()[at:], "\n") != want {
			t.Errorf("the last %d lines: %q, %v", lines, all.String()[at:], err)
		}
	}
	if at, err := src.tailOffset(t.Context(), 1000); err != nil || at != src.files[0].begin {
		t.Errorf("more lines than there are: %d, %v", at, err)
	}
}
