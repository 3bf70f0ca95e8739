package processdaemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"tandem/internal/atomicfile"
	"tandem/processdaemon/protocol"
)

// maxUpload is the largest file that is taken for a running task, in bytes.
const maxUpload = 16 << 20

// Upload puts a file beneath the workPath of a running task, whole or not at all.
// It stays there when the task goes, as what the task itself writes does. Symbolic
// links in its path are followed as long as they stay beneath workPath; one in the
// file's own place is replaced.
func (d *Daemon) Upload(id string, f protocol.File) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	if s := t.status(); s.State != running {
		return fail(protocol.CodeConflict, "task %q is %s: files are uploaded to a running one", id, s.State)
	}
	if len(f.Content) > maxUpload {
		return fail(protocol.CodeInvalid, "file %s has %d bytes; at most %d are taken", f.Path, len(f.Content), maxUpload)
	}
	// This part of the specification never changes.
	spec := &t.rec.Spec
	rel := filepath.Clean(f.Path)
	if filepath.IsAbs(rel) {
		if rel, err = filepath.Rel(spec.WorkPath, rel); err != nil {
			return fail(protocol.CodeInvalid, "file %s: %v", f.Path, err)
		}
	}
	if !filepath.IsLocal(rel) || rel == "." || strings.HasSuffix(f.Path, "/") {
		return fail(protocol.CodeInvalid, "path %s is not that of a file beneath workPath %s; name one there", f.Path, spec.WorkPath)
	}
	// Two of the same name at once would share an unfinished file.
	d.uploads.Lock()
	defer d.uploads.Unlock()
	if err := upload(spec, rel, f); err != nil {
		return fail(protocol.CodeInvalid, "process %q: file %s beneath workPath %s: %v", spec.Name, rel, spec.WorkPath, err)
	}
	return nil
}

func upload(spec *protocol.Spec, rel string, f protocol.File) error {
	root, err := os.OpenRoot(spec.WorkPath)
	if err != nil {
		return err
	}
	defer root.Close()
	// The directory belongs to the task's user, who may put links into it at any
	// moment: an os.Root resolves each step beneath itself.
	dir, err := root.OpenRoot(filepath.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("its directory does not exist; make it first, with exec")
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(rel)
	mode, uid, gid, err := replaced(dir, name)
	if err != nil {
		return err
	}
	if f.Mode != 0 {
		mode = fs.FileMode(f.Mode) & 0o777
	}
	if f.User != "" || uid < 0 {
		as, err := lookupAccount(orElse(f.User, spec.User))
		if err != nil {
			return err
		}
		uid, gid = -1, -1
		if as.cred != nil {
			uid, gid = as.uid, as.gid
		}
	}
	return atomicfile.WriteIn(dir, name, f.Content, mode, func(w *os.File) error {
		if uid < 0 {
			return nil
		}
		return w.Chown(uid, gid)
	})
}

// replaced returns the permissions and the owner of the file that is there, -1
// where there is none to be kept.
func replaced(dir *os.Root, name string) (mode fs.FileMode, uid, gid int, err error) {
	const fresh = 0o644
	info, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fresh, -1, -1, nil
	case err != nil:
		return 0, 0, 0, err
	case info.Mode()&fs.ModeSymlink != 0:
		return fresh, -1, -1, nil
	case !info.Mode().IsRegular():
		return 0, 0, 0, errors.New("what is there is no regular file; name another")
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return info.Mode().Perm(), -1, -1, nil
	}
	return info.Mode().Perm(), int(st.Uid), int(st.Gid), nil
}

func orElse(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
