package processdaemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/cmdline"
	"tandem/internal/failpoint"
	"tandem/processdaemon/keeper"
)

// run starts a command of the artifact as the task's user in its group, under
// a key that names this start. errSpawnLost says that nothing runs under the key,
// though something may be left of the try in the task's group.
func (t *task) run(line, what, key string) (keeper.Entry, error) {
	spec := &t.rec.Spec
	wrap := func(err error) (keeper.Entry, error) { return keeper.Entry{}, fmt.Errorf("%s %q: %w", what, line, err) }
	argv, err := cmdline.Split(line)
	if err != nil {
		return wrap(err)
	}
	as, err := lookupAccount(spec.User)
	if err != nil {
		return keeper.Entry{}, err
	}
	if err := t.makeDirs(as); err != nil {
		return keeper.Entry{}, err
	}
	mainPid := t.rec.Pid
	if t.rec.Exit != nil || t.early != nil {
		mainPid = 0 // it may be a stranger's by now
	}
	s := keeper.Spec{Key: key, Argv: argv, Dir: spec.WorkPath, Env: fullEnv(spec.Env, as, mainPid)}
	if as.cred != nil {
		s.As = &keeper.Credential{UID: as.cred.Uid, GID: as.cred.Gid, Groups: as.cred.Groups}
	}
	if s.Path, err = findProgram(argv[0], s.Dir, s.Env); err != nil {
		return wrap(err)
	}
	if s.Stdout, err = openOutput(spec.Sandbox, "stdout"); err != nil {
		return keeper.Entry{}, err
	}
	defer s.Stdout.Close()
	if s.Stderr, err = openOutput(spec.Sandbox, "stderr"); err != nil {
		return keeper.Entry{}, err
	}
	defer s.Stderr.Close()
	t.d.rotator.add(spec.Sandbox)
	t.d.rotator.addPlace(spec.Sandbox, spec.LogPath, as)
	if t.rec.Notes, err = t.group.Create(t.limits()); err != nil {
		return keeper.Entry{}, err
	}
	if what != "startCmd" {
		t.makeRoom()
	}
	if s.Cgroup, err = t.group.OpenForClone(); err != nil {
		return keeper.Entry{}, err
	}
	if s.Cgroup != nil {
		defer s.Cgroup.Close()
	}
	if s.Procs, err = t.group.OpenProcs(s.Cgroup != nil); err != nil {
		return keeper.Entry{}, err
	}
	defer func() {
		for _, f := range s.Procs {
			f.Close()
		}
	}()
	attrs, err := attrsOf(spec, as)
	if err != nil {
		return keeper.Entry{}, err
	}
	if attrs.NetNS != nil {
		defer attrs.NetNS.Close()
	}
	s.NoNewPrivs, s.Umask, s.Nice, s.Rlimits, s.NetNS = attrs.NoNewPrivs, attrs.Umask, attrs.Nice, attrs.Rlimits, attrs.NetNS
	s.OOMScoreAdj = spec.OOMScoreAdj
	e, err := t.spawn(&s)
	if errors.Is(err, keeper.ErrTooOld) && s.NoNewPrivs && spec.NewPrivileges == "" {
		// What was asked for by nobody must not keep everything from starting after
		// an upgrade.
		t.rec.Notes = append(t.rec.Notes, "new privileges are not denied: "+err.Error())
		s.NoNewPrivs = false
		e, err = t.spawn(&s)
	}
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without #!: a shell runs it itself, and so do we.
		s.Argv, s.Path = append([]string{"/bin/sh", s.Path}, argv[1:]...), "/bin/sh"
		e, err = t.spawn(&s)
	}
	if errors.Is(err, errSpawnLost) {
		return e, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the interpreter that its first line or its ELF header names is not on this agent", err)
	}
	if errors.Is(err, syscall.ETXTBSY) {
		err = fmt.Errorf("%w: somebody has the program open for writing; let them finish before it is started", err)
	}
	if errors.Is(err, syscall.EACCES) && noExec(s.Path, s.Dir) {
		err = fmt.Errorf("%w: the file system of %s is mounted with noexec; mount it without, or put the program elsewhere", err, s.Path)
	} else if errors.Is(err, syscall.EACCES) && as.cred != nil {
		err = fmt.Errorf("%w: %s", err, denied(as, s.Path, spec.WorkPath))
	}
	if err == nil {
		err = failpoint.Inject("processdaemon/spawned")
	}
	if err != nil {
		return wrap(err)
	}
	t.group.Lead(e.ID)
	return e, nil
}

// spawn starts a process. A program that the daemon has just put into its place may be open for
// writing for a moment more, in a child that was forked meanwhile and has not come to its
// exec, and such a program cannot be run (execve(2), ETXTBSY).
func (t *task) spawn(s *keeper.Spec) (keeper.Entry, error) {
	e, err := t.d.parent.spawn(t.ctx, s)
	for end := time.Now().Add(t.d.busyTime); errors.Is(err, syscall.ETXTBSY) && time.Now().Before(end) && t.ctx.Err() == nil; {
		time.Sleep(busyPause)
		e, err = t.d.parent.spawn(t.ctx, s)
	}
	return e, err
}

const (
	// busyTime is how long a program may stay open for writing; a task answers nobody meanwhile.
	busyTime  = time.Second
	busyPause = 5 * time.Millisecond
)

// noExec tells whether nothing on the file system of a program can be run.
func noExec(path, dir string) bool {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}

// openOutput opens a file of the sandbox for appending. The directory may be
// writable by the task's user, so a symlink or a pipe in the place of the
// file is refused rather than followed.
func openOutput(dir, name string) (*os.File, error) {
	path := dir + "/" + name
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, fmt.Errorf("output file: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("output file %s is not a regular file; remove it", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
