package agent

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"tandem/localmesos/internal/wire"
)

// maxRead is how much of a file one answer holds, in bytes.
const maxRead = 16 * 4096

// locate finds the sandbox and the path in it that a request means: a real path
// below a run's sandbox (or its link "latest"), or Mesos's virtual one,
// /frameworks/<id>/executors/<id>/runs/<id or latest>/... Nothing else of the
// machine can be named.
func (a *Agent) locate(p string) (sandbox, inside string, err *wire.Error) {
	notFound := wire.Errorf(http.StatusNotFound, "404 Not Found.")
	p = path.Clean(p)
	rest, isReal := strings.CutPrefix(p, filepath.Join(a.store.Work(), "slaves")+"/")
	if !isReal {
		var ok bool
		if rest, ok = strings.CutPrefix(strings.TrimPrefix(p, "/"), "frameworks/"); !ok {
			return "", "", notFound
		}
		id := ""
		if !a.loop.do(a.ctx, func() { id = a.id() }) || id == "" {
			return "", "", notFound
		}
		rest = id + "/frameworks/" + rest
	}
	const parts = 8 // <agent>/frameworks/<id>/executors/<id>/runs/<id>[/...]
	f := strings.SplitN(rest, "/", parts)
	if len(f) < parts-1 || f[1] != "frameworks" || f[3] != "executors" || f[5] != "runs" {
		return "", "", notFound
	}
	for _, name := range f[:parts-1] {
		if name == "" || name == "." || name == ".." {
			return "", "", notFound
		}
	}
	runs := filepath.Join(a.store.Work(), "slaves", f[0], "frameworks", f[2], "executors", f[4], "runs")
	run := f[6]
	if run == "latest" {
		to, err := os.Readlink(filepath.Join(runs, "latest"))
		if err != nil {
			return "", "", notFound
		}
		run = filepath.Base(to)
	}
	inside = "."
	if len(f) == parts {
		inside = f[parts-1]
	}
	return filepath.Join(runs, run), inside, nil
}

// open opens what a request names. Links that lead out of the sandbox are
// refused by os.Root: a task can put any link there.
func (a *Agent) open(p string) (root *os.Root, f *os.File, e *wire.Error) {
	sandbox, inside, e := a.locate(p)
	if e != nil {
		return nil, nil, e
	}
	root, err := os.OpenRoot(sandbox)
	if err == nil {
		// Not to wait for the writer of a fifo.
		f, err = root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err == nil {
		return root, f, nil
	}
	if root != nil {
		root.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, wire.Errorf(http.StatusNotFound, "404 Not Found.")
	default:
		return nil, nil, wire.Errorf(http.StatusForbidden, "%s cannot be opened: it is outside of the sandbox, or not readable\n", p)
	}
}

// openRegular opens a regular file. verb is what the client wants to do to it.
func (a *Agent) openRegular(p, verb string) (root *os.Root, f *os.File, st fs.FileInfo, e *wire.Error) {
	root, f, e = a.open(p)
	if e != nil {
		return nil, nil, nil, e
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		f.Close()
		root.Close()
		return nil, nil, nil, wire.Errorf(http.StatusBadRequest, "Cannot %s a directory or a special file.\n", verb)
	}
	return root, f, st, nil
}

// pathOf is the path that a request of /files asks for; without one it is answered.
func pathOf(w http.ResponseWriter, r *http.Request) (string, bool) {
	p := r.URL.Query().Get("path")
	if p == "" {
		wire.Text(w, http.StatusBadRequest, "Expecting 'path=value' in query.\n")
	}
	return p, p != ""
}

// entries are what is in a directory, sorted by name.
func (a *Agent) entries(p string) ([]fs.FileInfo, *wire.Error) {
	root, f, e := a.open(p)
	if e != nil {
		return nil, e
	}
	defer root.Close()
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, wire.Errorf(http.StatusNotFound, "404 Not Found.")
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	var out []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil { // it may be gone by now
			out = append(out, info)
		}
	}
	return out, nil
}

// browseFiles is /files/browse: the entries of a directory.
func (a *Agent) browseFiles(w http.ResponseWriter, r *http.Request) {
	dir, ok := pathOf(w, r)
	if !ok {
		return
	}
	entries, e := a.entries(dir)
	if e != nil {
		e.Write(w)
		return
	}
	dir = path.Clean(dir)
	out := []any{}
	for _, info := range entries {
		o := object{"path": path.Join(dir, info.Name()), "size": info.Size(), "mtime": info.ModTime().Unix(),
			"mode": modeText(info.Mode()), "nlink": 1, "uid": "", "gid": ""}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			o["nlink"], o["uid"], o["gid"] = st.Nlink, strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))
		}
		out = append(out, o)
	}
	writeJSON(w, r, out)
}

// modeText is a mode as ls -l shows it.
func modeText(m fs.FileMode) string {
	kind := "-"
	switch {
	case m.IsDir():
		kind = "d"
	case m&fs.ModeSymlink != 0:
		kind = "l"
	case m&fs.ModeNamedPipe != 0:
		kind = "p"
	case m&fs.ModeSocket != 0:
		kind = "s"
	}
	return kind + m.Perm().String()[1:]
}

// readFile is /files/read: a piece of a file. Without offset, or with -1, it
// tells only how long the file is, as the offset of its end.
func (a *Agent) readFile(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	integer := func(name string, to *int64) bool {
		text := q.Get(name)
		if text == "" {
			return true
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			wire.Text(w, http.StatusBadRequest, "Failed to parse "+name+": Failed to convert '"+text+"' to number.\n")
			return false
		}
		*to = v
		return true
	}
	offset, length := int64(-1), int64(-1)
	if !integer("offset", &offset) || !integer("length", &length) {
		return
	}
	if offset < -1 || length < -1 {
		wire.Text(w, http.StatusBadRequest, "Negative offset or length provided.\n")
		return
	}
	p, ok := pathOf(w, r)
	if !ok {
		return
	}
	b, size, e := a.piece(p, max(offset, 0), length)
	switch {
	case e != nil:
		e.Write(w)
	case offset == -1:
		writeJSON(w, r, object{"offset": size, "data": ""})
	default:
		writeJSON(w, r, object{"offset": offset, "data": string(wholeRunes(b))})
	}
}

// piece reads from a file; a length below zero is as much as one answer holds.
func (a *Agent) piece(p string, offset, length int64) (b []byte, size int64, e *wire.Error) {
	root, f, st, e := a.openRegular(p, "read from")
	if e != nil {
		return nil, 0, e
	}
	defer root.Close()
	defer f.Close()
	if length < 0 || length > maxRead {
		length = maxRead
	}
	b = make([]byte, max(0, min(length, st.Size()-offset)))
	n, err := f.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, wire.Errorf(http.StatusInternalServerError, "Failed to read the file: %v", err)
	}
	return b[:n], st.Size(), nil
}

// wholeRunes cuts the piece before a character that goes on in the next one,
// so that a reader who adds the length to the offset loses nothing.
func wholeRunes(b []byte) []byte {
	for i := 1; i <= utf8.UTFMax && i < len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// downloadFile is /files/download.
func (a *Agent) downloadFile(w http.ResponseWriter, r *http.Request) {
	p, ok := pathOf(w, r)
	if !ok {
		return
	}
	root, f, _, e := a.openRegular(p, "download")
	if e != nil {
		e.Write(w)
		return
	}
	defer root.Close()
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(path.Base(p)))
	http.ServeContent(w, r, "", time.Time{}, f)
}
