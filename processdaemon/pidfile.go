package processdaemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// A process that puts itself into the background is found by its pid file. It runs as
// soon as the file has named it for a moment; until the grace period is over, the file
// may be replaced by one that names another process of the task. From then on the process
// is known by its identity: the file is not looked at again, and neither its name nor
// that of its program matters any more.

// errPidFileEmpty says that a pid file has nothing in it (yet).
var errPidFileEmpty = errors.New("it is empty")

// pidFileText reads the first word of a pid file, as many programs write a newline
// or more after the pid, and tells who owns the file.
//
// Its directory may be the task's user's, who can put anything in its place. What is
// there is looked at before it is opened: a pipe would be waited for without end, and
// opening a device alone can have effects, down to a reboot by a watchdog.
func pidFileText(path string) (word string, owner uint32, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", 0, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG {
		return "", 0, fmt.Errorf("it is a %s, not a file", kindNames[kind])
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	const most = 256
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return "", 0, err
	}
	if words := strings.Fields(string(b)); len(words) > 0 {
		return words[0], st.Uid, nil
	}
	return "", st.Uid, errPidFileEmpty
}

var kindNames = map[uint32]string{
	unix.S_IFDIR: "directory", unix.S_IFIFO: "named pipe", unix.S_IFSOCK: "socket", unix.S_IFCHR: "device", unix.S_IFBLK: "device",
}

// parsePidFile reads the pid in a file of a task that runs as user uid.
func parsePidFile(path string, uid int) (int, error) {
	word, owner, err := pidFileText(path)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(word)
	switch {
	case err == nil && pid > 1:
		return pid, nil
	case uid != 0 && uid != int(owner):
		// The daemon can read what the task's user cannot: a link to such a file must
		// not bring its content into a message.
		return 0, errors.New("it belongs to another user than the task's and holds no pid")
	}
	if pid == 1 {
		return 0, errors.New("process 1, which it names, was not started by this task")
	}
	return 0, fmt.Errorf("it holds %q, which is no pid", word)
}

// removeOldPidFile removes a pid file of an earlier run, which would name a process
// that is long gone, or a stranger. Anything else stays, whatever pidFile names: it is
// not believed either, and the daemon may remove what the task's user may not.
func removeOldPidFile(path string, uid int) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	// Through the open directory, so that what was looked at is what is removed.
	name := filepath.Base(path)
	here := fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
	word, owner, err := pidFileText(here)
	if err != nil {
		return err
	}
	if pid, err := strconv.Atoi(word); err != nil || pid < 1 || uid != 0 && uid != int(owner) {
		return fmt.Errorf("it is no pid file of uid %d", uid)
	}
	return unix.Unlinkat(dir, name, 0)
}

// uid is whom the task runs as.
func (t *task) uid() int {
	as, err := lookupAccount(t.rec.Spec.User)
	if err != nil {
		return -1 // nobody's
	}
	return as.uid
}

// findMain opens the process that the pid file names, if it is alive, the task's,
// and of the name that was asked for.
func (t *task) findMain() (*procid.Process, error) {
	pid, err := parsePidFile(t.rec.Spec.PidFile, t.uid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is no such file")
	}
	if err != nil {
		return nil, err
	}
	p, err := procid.OpenPid(pid)
	if err == nil && p.Identity().Gone() {
		p.Close()
		err = procid.ErrGone
	}
	if errors.Is(err, procid.ErrGone) {
		how := ""
		if e, err := t.d.parent.stray(t.ctx, pid, t.rec.Command.StartTime); err == nil {
			how = ": " + describeExit(protocol.Exit{Known: e.Known, Code: e.Code, Signal: e.Signal})
		}
		return nil, fmt.Errorf("process %d, which it names, is not alive%s", pid, how)
	}
	if err != nil {
		return nil, err
	}
	// As long as the process that was opened lives, its number is its own, so the
	// answers are about it.
	mine, err := t.group.Contains(pid)
	if t.d.tree.Mode() == cgroup.ModeSession {
		mine, err = p.Identity().StartTime >= t.rec.Command.StartTime, nil
	}
	if err == nil && !mine {
		err = fmt.Errorf("process %d, which it names, was not started by this task", pid)
	}
	if err == nil && t.rec.Spec.ProcName != "" {
		if found, ok := procNamed(pid, t.rec.Spec.ProcName); !ok {
			err = fmt.Errorf("process %d, which it names, is %s and not procName %q; correct procName, or let the file name the right process",
				pid, found, t.rec.Spec.ProcName)
		}
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}
