package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/atomicfile"
	"tandem/internal/procid"
)

var _ executor.Uploader = (*Runtime)(nil)

// Upload puts a file into a running container, as its processes see its files:
// volumes and file systems in memory too. Symbolic links are resolved within the
// container; one in the file's own place is replaced.
//
// It does not go through the engine, which would write into the file while it is
// read, and sees no file system in memory.
func (r *Runtime) Upload(ctx context.Context, taskID string, f api.UploadFile) error {
	id, proc, err := r.running(taskID)
	if err != nil {
		return err
	}
	if proc == nil {
		return fmt.Errorf("task %q takes no files: the engine's processes cannot be seen from the executor", taskID)
	}
	if !path.IsAbs(f.Path) {
		return fmt.Errorf("path %q is not absolute; name the file from the container's root on", f.Path)
	}
	p := atomicfile.Put{Data: f.Content, Mode: fs.FileMode(f.Mode) & 0o777, Fresh: func() (atomicfile.Owner, error) { return ownerOfProcess(proc.Identity().Pid) }}
	if f.User != "" {
		who, known := numericOwner(f.User)
		if !known {
			name, _, _ := strings.Cut(f.User, ":")
			if who, known = r.accounts(ctx, id)[name]; !known {
				return fmt.Errorf("user %q is no user of the container; use one that its /etc/passwd has, or a number", f.User)
			}
		}
		p.Owner = &atomicfile.Owner{UID: who.uid, GID: who.gid}
	}
	name := path.Base(path.Clean(f.Path))
	dir, err := openInside(proc, path.Dir(path.Clean(f.Path)), name)
	if err != nil {
		return fmt.Errorf("file %s in task %q: %w", f.Path, taskID, err)
	}
	defer dir.Close()
	// Two of the same name at once would share an unfinished file.
	r.uploads.Lock()
	defer r.uploads.Unlock()
	p.Note = func(tmp string) error { return r.noteUpload(taskID, path.Dir(path.Clean(f.Path)), tmp) }
	err = atomicfile.PutIn(dir, name, p)
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("file %s in task %q: the file system is read-only; choose a volume that is not", f.Path, taskID)
	case err != nil:
		return fmt.Errorf("file %s in task %q: %w", f.Path, taskID, err)
	}
	return nil
}

// running returns the container of a task that runs, and its first process, nil
// where the kernel cannot be asked.
func (r *Runtime) running(taskID string) (containerID string, proc *procid.Process, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tasks[taskID]
	if t == nil || t.run == nil || t.stopping || over(t.run.ended) {
		return "", nil, fmt.Errorf("task %q does not run", taskID)
	}
	return t.containerID, t.run.proc, nil
}

// openInside opens the directory of a file as a process sees it. Whatever links are on the way
// or are put there meanwhile, what is opened is beneath the process's root: see
// RESOLVE_IN_ROOT in openat2(2), and /proc/pid/root in proc_pid_root(5).
func openInside(p *procid.Process, dir, name string) (*os.Root, error) {
	root, err := os.OpenFile("/proc/"+strconv.Itoa(p.Identity().Pid)+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("the container's files: %w", err)
	}
	defer root.Close()
	// The number was the process's own when the directory was opened, if it still is.
	if !p.Identity().Alive() {
		return nil, errors.New("the container has ended")
	}
	fd, err := unix.Openat2(int(root.Fd()), dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, syscall.ENOENT):
		return nil, fmt.Errorf("directory %s does not exist in the container; make it first, with exec", dir)
	case errors.Is(err, syscall.ENOSYS):
		return nil, errors.New("the agent's kernel has no openat2(2); Linux 5.6 or later is needed")
	case err != nil:
		return nil, fmt.Errorf("directory %s: %w", dir, err)
	}
	opened := os.NewFile(uintptr(fd), dir)
	defer opened.Close()
	// The kernel would let a file take the place of a mount that is in another mount
	// namespace than ours, and undo the mount.
	file, err := unix.Openat2(fd, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV})
	switch {
	case err == nil:
		_ = unix.Close(file) // nothing was written to it
	case errors.Is(err, syscall.EXDEV):
		return nil, errors.New("it is a mount of its own, such as the file of a secret or a configmap, and those are changed by a new artifact")
	case !errors.Is(err, syscall.ENOENT):
		return nil, err
	}
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
}

// ownerOfProcess returns the effective user and group of a process, as the agent
// counts them.
func ownerOfProcess(pid int) (atomicfile.Owner, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return atomicfile.Owner{}, fmt.Errorf("the container's user: %w", err)
	}
	out := atomicfile.Owner{UID: -1, GID: -1}
	for line := range strings.SplitSeq(string(b), "\n") {
		// Uid: real, effective, saved, file system
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		switch n, err := strconv.Atoi(f[2]); {
		case err != nil:
		case f[0] == "Uid:":
			out.UID = n
		case f[0] == "Gid:":
			out.GID = n
		}
	}
	if out.UID < 0 || out.GID < 0 {
		return out, errors.New("the container's user cannot be known")
	}
	return out, nil
}
