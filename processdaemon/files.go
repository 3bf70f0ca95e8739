package processdaemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
	"tandem/processdaemon/protocol"
)

// putFiles puts configuration and secrets in place. Their paths are recorded
// first, durably: a secret must not stay on the disk for ever because the
// power failed at the wrong moment.
func (t *task) putFiles(files []protocol.File) error {
	r := t.rec
	if r.State != ready {
		return fail(protocol.CodeConflict, "task %q is %s: files are taken while it is ready", r.Spec.ID, r.State)
	}
	paths := make([]string, len(files))
	owners := make([]*account, len(files))
	for i, f := range files {
		if paths[i] = f.Path; !filepath.IsAbs(f.Path) {
			paths[i] = filepath.Join(r.Spec.WorkPath, f.Path)
		}
		name := f.User
		if name == "" {
			name = r.Spec.User
		}
		var err error
		if owners[i], err = lookupAccount(name); err != nil {
			return fail(protocol.CodeInvalid, "process %q: file %s: %v", r.Spec.Name, f.Path, err)
		}
		if !slices.Contains(r.Files, paths[i]) {
			r.Files = append(r.Files, paths[i])
		}
	}
	if err := t.d.store.save(r, true); err != nil {
		return fail(protocol.CodeInternal, "%v", err)
	}
	t.d.files.mu.Lock()
	defer t.d.files.mu.Unlock()
	t.d.files.claim(paths, r.Spec.ID)
	for i, f := range files {
		if err := t.putFile(paths[i], f, owners[i]); err != nil {
			return fail(protocol.CodeInvalid, "process %q: file %s: %v", r.Spec.Name, f.Path, err)
		}
	}
	return nil
}

// putFile writes below a handle on the directory, under another name, and renames:
// neither a symlink in the file's place nor one that is put there meanwhile is followed.
func (t *task) putFile(path string, f protocol.File, owner *account) error {
	mode := fs.FileMode(f.Mode) & 0o777
	if mode == 0 {
		mode = 0o400
	}
	if f.Secret {
		mode &^= 0o007
	}
	user, err := lookupAccount(t.rec.Spec.User)
	if err != nil {
		return err
	}
	root, name, err := t.openPlace(path, user)
	if err != nil {
		return err
	}
	defer root.Close()
	return atomicfile.WriteIn(root, name, f.Content, mode, func(w *os.File) error {
		if owner.cred == nil {
			return nil
		}
		return w.Chown(owner.uid, owner.gid)
	})
}

// Tail returns the last lines, at most n bytes, that a task wrote: stdout
// and stderr, each headed when both say something.
func (d *Daemon) Tail(id string, n int) (string, error) {
	t, err := d.task(id)
	if err != nil {
		return "", err
	}
	return tailSandbox(t.sandbox, n)
}

func tailSandbox(dir string, n int) (string, error) {
	out, err1 := tailOutput(filepath.Join(dir, "stdout"), n)
	errText, err2 := tailOutput(filepath.Join(dir, "stderr"), n)
	if err := errors.Join(err1, err2); err != nil {
		return "", fmt.Errorf("output: %w", err)
	}
	switch {
	case errText == "":
		return out, nil
	case out == "":
		return errText, nil
	}
	const h1, h2 = "stdout:\n", "\nstderr:\n"
	half := max(0, (n-len(h1)-len(h2))/2)
	// stderr says why, so it gets what stdout does not need.
	e := lastBytes(errText, max(half, n-len(h1)-len(h2)-len(out)))
	o := lastBytes(out, max(0, n-len(h1)-len(h2)-len(e)))
	return h1 + o + h2 + e, nil
}

// tailOutput returns the end of a file, and of what was cut off it last, as text,
// from the start of a line where it can; "" when there is none. Symlinks and pipes
// are not read: the task's user may own the directory.
func tailOutput(path string, n int) (string, error) {
	text, err := readEnd(path, n)
	if err == nil && len(text) <= n {
		var before string
		if before, err = lastPiece(path); err == nil && before != "" {
			if before, err = readEnd(before, n-len(text)); err == nil {
				text = before + text
			}
		}
	}
	return lastBytes(strings.ToValidUTF8(text, "\uFFFD"), n), err
}

// lastPiece is the path of what was cut off a file last; "" when there is none.
func lastPiece(path string) (string, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer root.Close()
	pieces, err := piecesOf(root, filepath.Base(path))
	if err != nil || len(pieces) == 0 {
		return "", err
	}
	return filepath.Join(filepath.Dir(path), pieces[len(pieces)-1].name), nil
}

// readEnd returns the last n bytes of a file, and one more if there is one: it
// tells whether the cut is at a line's start.
func readEnd(path string, n int) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	off := max(0, st.Size()-int64(n)-1)
	b, err := io.ReadAll(io.NewSectionReader(f, off, int64(n)+1))
	if err != nil {
		return "", err
	}
	return string(b), nil
}

// lastBytes cuts s to its last n bytes, then to whole lines if any is left.
func lastBytes(s string, n int) string {
	s = strings.TrimRight(s, "\n")
	if len(s) <= n {
		return s
	}
	cut := len(s) - n
	for cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	if s[cut-1] == '\n' {
		return s[cut:]
	}
	s = s[cut:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)-1 {
		return s[i+1:]
	}
	return s
}
