package processdaemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	account := func(name string) (atomicfile.Owner, error) {
		as, err := lookupAccount(name)
		if err != nil || as.cred == nil {
			return atomicfile.Owner{UID: -1, GID: -1}, err
		}
		return atomicfile.Owner{UID: as.uid, GID: as.gid}, nil
	}
	p := atomicfile.Put{Data: f.Content, Mode: fs.FileMode(f.Mode) & 0o777, Fresh: func() (atomicfile.Owner, error) { return account(spec.User) }}
	if f.User != "" {
		owner, err := account(f.User)
		if err != nil {
			return err
		}
		p.Owner = &owner
	}
	return atomicfile.PutIn(dir, filepath.Base(rel), p)
}
