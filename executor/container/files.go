package container

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/internal/failpoint"
)

// filesRoots are where the files of secrets and configmaps are kept, the first
// that is in memory. They never reach a disk of the agent, the image's layers or
// the sandbox; a container sees each of them as a mount.
var filesRoots = []string{"/run/tandem-files", "/dev/shm/tandem-files"}

// filesDir is the directory of a task's files below a root; both ids are in it,
// since the task ids of two frameworks may be the same.
func filesDir(root, owner, taskID string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + taskID))
	return filepath.Join(root, hex.EncodeToString(sum[:16]))
}

// memoryRoot returns the first root that is on a file system in memory and makes it.
func memoryRoot() (string, error) {
	for _, root := range filesRoots {
		var fs unix.Statfs_t
		if unix.Statfs(filepath.Dir(root), &fs) != nil || fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
			continue
		}
		if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("directory of files in memory: %w", err)
		}
		// /dev/shm is everybody's: somebody may have been there first.
		info, err := os.Lstat(root)
		if err != nil {
			return "", fmt.Errorf("directory of files in memory: %w", err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
			return "", fmt.Errorf("%s is not a directory of ours alone; remove it, it is in the place of secrets", root)
		}
		return root, nil
	}
	return "", fmt.Errorf("neither %s is on tmpfs, and secrets do not go to a disk; mount one there", strings.Join(filesRoots, " nor "))
}

// files adds a mount for each file of a secret or configmap, and settles where
// they are kept.
func (r *Runtime) files(errs *api.Errors, t *executor.Task, out *compiled) {
	if len(t.Spec.Files) == 0 {
		return
	}
	// Where there is no root, writing the files will say so: that is the agent's fault.
	root, err := memoryRoot()
	out.filesErr = err
	out.filesDir = filesDir(root, t.Owner, t.ID)
	taken := map[string]bool{}
	for _, m := range out.spec.HostConfig.Mounts {
		taken[m.Target] = true
	}
	for i, f := range t.Spec.Files {
		where := fmt.Sprintf("files[%d].path", i)
		target := path.Clean(f.Path)
		switch {
		case !path.IsAbs(f.Path) || target == "/" || strings.HasSuffix(f.Path, "/"):
			errs.Add(where, f.Path, "must be the absolute path of a file in the container")
			continue
		case taken[target]:
			errs.Add(where, f.Path, "is used by another file or volume of this container; choose another")
			continue
		}
		taken[target] = true
		out.spec.HostConfig.Mounts = append(out.spec.HostConfig.Mounts, engine.Mount{
			Type: "bind", Source: filepath.Join(out.filesDir, strconv.Itoa(i)), Target: target, ReadOnly: fileMode(f)&0o222 == 0,
		})
	}
}

func fileMode(f api.TaskFile) os.FileMode {
	if mode := os.FileMode(f.Mode & 0o777); mode != 0 {
		return mode
	}
	return 0o444
}

// writeFiles writes the files, root's for now: whose they are to be is known
// once the container exists and its accounts can be read.
func writeFiles(dir string, files []api.TaskFile) error {
	if dir == "" {
		return nil
	}
	// What an earlier attempt left.
	if err := removeFiles(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("directory of the task's files: %w", err)
	}
	for i, f := range files {
		name := filepath.Join(dir, strconv.Itoa(i))
		if err := failpoint.Inject("container/file"); err != nil {
			return err
		}
		if err := os.WriteFile(name, f.Content, 0o600); err != nil {
			return fmt.Errorf("file %q of the task: %w", f.Path, err)
		}
		// The umask is not ours to trust.
		if err := os.Chmod(name, fileMode(f)); err != nil {
			return fmt.Errorf("file %q of the task: %w", f.Path, err)
		}
	}
	return nil
}

// ownFiles gives the files to their owners before the container starts: a file's
// own, otherwise the user that the container runs as.
func (r *Runtime) ownFiles(ctx context.Context, id, dir string, s *api.TaskSpec) error {
	var errs api.Errors
	var passwd map[string]owner
	for i, f := range s.Files {
		user := f.User
		if user == "" {
			user = s.Container.User
		}
		who, known := numericOwner(user)
		if !known {
			if passwd == nil {
				passwd = r.accounts(ctx, id)
			}
			name, _, _ := strings.Cut(user, ":")
			if who, known = passwd[name]; !known {
				errs.Add(fmt.Sprintf("files[%d].user", i), user, "is no user of the image; use one that its /etc/passwd has, or a number")
				continue
			}
		}
		if who == (owner{}) {
			continue
		}
		if err := os.Chown(filepath.Join(dir, strconv.Itoa(i)), who.uid, who.gid); err != nil {
			return fmt.Errorf("file %q of the task: %w", f.Path, err)
		}
	}
	return errs.Sorted()
}

// removeFiles deletes a task's files. dir may come from a record on disk, so
// what is no directory of ours is left alone.
func removeFiles(dir string) error {
	if dir == "" {
		return nil
	}
	name, err := hex.DecodeString(filepath.Base(dir))
	if err != nil || len(name) != 16 || !slices.Contains(filesRoots, filepath.Dir(dir)) {
		return fmt.Errorf("%q is no directory of a task's files; it is left as it is", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("files of the task: %w", err)
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
