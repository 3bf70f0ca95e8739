package processdaemon

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tandem/internal/atomicfile"
	"tandem/internal/safepath"
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
	if err := d.upload(spec, rel, f); err != nil {
		return fail(protocol.CodeInvalid, "process %q: file %s beneath workPath %s: %v", spec.Name, rel, spec.WorkPath, err)
	}
	return nil
}

// unfinished is a file that an upload has begun beneath a directory.
type unfinished struct {
	WorkPath string `json:"workPath"`
	// File is its path beneath that.
	File string `json:"file"`
}

// unfinishedName is where the one upload that is under way is noted. It is written
// while an unfinished file has a name, which it rarely has.
const unfinishedName = "upload.json"

// noteUpload notes an unfinished file, and that there is none any more when file is empty.
func (d *Daemon) noteUpload(workPath, file string) error {
	path := filepath.Join(d.store.dir, unfinishedName)
	if file == "" {
		return atomicfile.Remove(path)
	}
	b, err := json.Marshal(unfinished{workPath, file})
	if err != nil {
		return err
	}
	return atomicfile.WriteVolatile(path, b, 0o600)
}

// forgetUpload removes what a daemon has left that was killed in the middle of an upload.
func (d *Daemon) forgetUpload() error {
	b, err := os.ReadFile(filepath.Join(d.store.dir, unfinishedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var u unfinished
	if err == nil {
		err = json.Unmarshal(b, &u)
	}
	// The name is one of ours, and what has it is not followed.
	if err == nil && strings.HasPrefix(filepath.Base(u.File), atomicfile.TempPrefix) {
		var root *os.Root
		if root, err = safepath.OpenRoot(u.WorkPath, false); err == nil {
			err = root.Remove(u.File)
			root.Close()
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, d.noteUpload("", ""))
}

func (d *Daemon) upload(spec *protocol.Spec, rel string, f protocol.File) error {
	root, err := safepath.OpenRoot(spec.WorkPath, false)
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
	p.Note = func(tmp string) error {
		if tmp != "" {
			tmp = filepath.Join(filepath.Dir(rel), tmp)
		}
		return d.noteUpload(spec.WorkPath, tmp)
	}
	if f.User != "" {
		owner, err := account(f.User)
		if err != nil {
			return err
		}
		p.Owner = &owner
	}
	return atomicfile.PutIn(dir, filepath.Base(rel), p)
}
