package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"tandem/executor/container/internal/engine"
	"tandem/internal/atomicfile"
	"tandem/internal/journal"
)

// UploadKind is the kind of the journal's records of unfinished files in containers. They
// come after the container's, so they are undone before it.
const UploadKind = "upload"

// unfinished is the data of such a record. In the container's own files it would go with
// the container; on a volume it would stay.
type unfinished struct {
	// Dir is the directory as the container's processes see it, File the name in it.
	Dir  string `json:"dir"`
	File string `json:"file"`
}

// noteUpload records an unfinished file before it has a name, and forgets it when
// the name is empty. A file that a power cut leaves is not looked for.
func (r *Runtime) noteUpload(taskID, dir, file string) error {
	if file == "" {
		return r.opt.Journal.Delete(UploadKind, taskID)
	}
	return r.opt.Journal.PutVolatile(UploadKind, taskID, unfinished{Dir: dir, File: file})
}

// NewUploadCleaner returns the undoing of one journal record of kind UploadKind, as
// NewCleaner does for containers. What is in a container that does not run any more is
// out of reach.
func NewUploadCleaner(host string) func(ctx context.Context, rec journal.Record) error {
	c, hostErr := engine.New(host)
	return func(ctx context.Context, rec journal.Record) error {
		if hostErr != nil {
			return hostErr
		}
		defer c.Close()
		if err := removeUnfinished(ctx, c, rec); err != nil {
			return fmt.Errorf("remove an unfinished file of task %q, whose executor is dead: %w", rec.ID, err)
		}
		return nil
	}
}

func removeUnfinished(ctx context.Context, c *engine.Client, rec journal.Record) error {
	var u unfinished
	if err := json.Unmarshal(rec.Data, &u); err != nil {
		return fmt.Errorf("journal record: %w", err)
	}
	if !strings.HasPrefix(u.File, atomicfile.TempPrefix) || path.Base(u.File) != u.File {
		return nil // no name that an upload gives
	}
	found, err := find(ctx, c, containerName(rec.ID), rec.Owner, rec.ID)
	if err != nil || found == nil {
		return err
	}
	proc := openInit(found.State.Pid, found.ID)
	if proc == nil {
		return nil
	}
	defer proc.Close()
	dir, err := openInside(proc, u.Dir, u.File)
	if err != nil {
		if proc.Identity().Gone() {
			return nil
		}
		return err
	}
	defer dir.Close()
	if err := dir.Remove(u.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
