package container

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"tandem/api"
)

// putFiles copies the files of secrets and configmaps into a container that has
// not started. They are held in memory only, and an error never shows content.
func (r *Runtime) putFiles(ctx context.Context, id string, files []api.TaskFile) error {
	var errs api.Errors
	var passwd map[string]owner
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i, f := range files {
		where := fmt.Sprintf("files[%d]", i)
		clean := path.Clean(f.Path)
		if !path.IsAbs(f.Path) || clean == "/" || strings.HasSuffix(f.Path, "/") {
			errs.Add(where+".path", f.Path, "must be the absolute path of a file in the container")
			continue
		}
		who, known := numericOwner(f.User)
		if !known {
			if passwd == nil {
				passwd = r.accounts(ctx, id)
			}
			if who, known = passwd[f.User]; !known {
				errs.Add(where+".user", f.User, "is no user of the image; use one that its /etc/passwd has, or a number")
				continue
			}
		}
		mode := int64(f.Mode & 0o7777)
		if mode == 0 {
			mode = 0o444
		}
		h := tar.Header{Name: strings.TrimPrefix(clean, "/"), Mode: mode, Size: int64(len(f.Content)),
			Uid: who.uid, Gid: who.gid, ModTime: time.Now(), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("file %q: %w", f.Path, err)
		}
		if _, err := w.Write(f.Content); err != nil {
			return fmt.Errorf("file %q: %w", f.Path, err)
		}
	}
	if err := errs.Sorted(); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	if err := r.engine.PutArchive(ctx, id, "/", &buf); err != nil {
		paths := make([]string, len(files))
		for i := range files {
			paths[i] = files[i].Path
		}
		return fmt.Errorf("files %s: %w", strings.Join(paths, ", "), err)
	}
	return nil
}

type owner struct{ uid, gid int }

// numericOwner reads "", "uid" and "uid:gid"; false means that it is a name.
func numericOwner(user string) (owner, bool) {
	if user == "" {
		return owner{}, true
	}
	u, g, both := strings.Cut(user, ":")
	uid, err := strconv.ParseUint(u, 10, 31)
	if err != nil {
		return owner{}, false
	}
	gid := uid
	if both {
		if gid, err = strconv.ParseUint(g, 10, 31); err != nil {
			return owner{}, false
		}
	}
	return owner{int(uid), int(gid)}, true
}

// accounts reads the users of a container from its own /etc/passwd. The agent's
// users have nothing to do with them.
func (r *Runtime) accounts(ctx context.Context, id string) map[string]owner {
	users := map[string]owner{"root": {}}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	stream, err := r.engine.GetArchive(ctx, id, "/etc/passwd")
	if err != nil {
		return users
	}
	defer stream.Close()
	t := tar.NewReader(stream)
	if _, err := t.Next(); err != nil {
		return users
	}
	text, err := io.ReadAll(io.LimitReader(t, 1<<20))
	if err != nil {
		return users
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		// name:password:uid:gid:...
		f := strings.Split(line, ":")
		if len(f) < 4 || f[0] == "" {
			continue
		}
		if who, ok := numericOwner(f[2] + ":" + f[3]); ok {
			users[f[0]] = who
		}
	}
	return users
}
