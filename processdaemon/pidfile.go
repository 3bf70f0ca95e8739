package processdaemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// A process that puts itself into the background is found once by its pid file.
// From then on it is known by its identity; the file is not looked at again, and
// neither its name nor that of its program matters.

// parsePidFile reads the pid in a file: the first word, as many programs write
// a newline or more after it.
func parsePidFile(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	const most = 256
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(b))
	if len(words) == 0 {
		return 0, errPidFileEmpty
	}
	pid, err := strconv.Atoi(words[0])
	if err != nil || pid < 2 {
		return 0, fmt.Errorf("it holds %q, which is no pid", words[0])
	}
	return pid, nil
}

var errPidFileEmpty = errors.New("it is empty")

// findMain opens the process that the pid file names, if it is alive and the task's.
func (t *task) findMain() (*procid.Process, error) {
	pid, err := parsePidFile(t.rec.Spec.PidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is no such file")
	}
	if err != nil {
		return nil, err
	}
	p, err := procid.OpenPid(pid)
	if err == nil && !p.Identity().Alive() {
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
	// The handle pins the process, so the answer is about the one that was opened.
	mine, err := t.group.Contains(pid)
	if t.d.tree.Mode() == cgroup.ModeSession {
		mine, err = p.Identity().StartTime >= t.rec.Command.StartTime, nil
	}
	if err == nil && !mine {
		err = fmt.Errorf("process %d, which it names, was not started by this task", pid)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// readPidFile takes up the main process as soon as the pid file names it, so
// that its early end is noticed when it happens.
func (t *task) readPidFile() {
	if t.watching {
		return
	}
	p, err := t.findMain()
	if err != nil {
		return
	}
	id := p.Identity()
	p.Close()
	t.rec.Main, t.rec.MainKey = id, fmt.Sprintf("%s.m%d-%d", t.rec.StartKey, id.Pid, id.StartTime)
	t.group.Lead(id)
	if err := t.d.parent.claim(t.ctx, t.rec.MainKey, id); err != nil {
		t.log.Error("the keeper does not know the main process; its exit code may be unknown", "err", err)
	}
	t.watchMain()
	if err := t.save(); err != nil {
		t.log.Error("the record cannot be written", "err", err)
	}
	if t.rec.Spec.StartGrace <= 0 {
		t.happen(message{ev: evAlive})
	}
}

// checkPidFile decides at the end of the grace period.
func (t *task) checkPidFile() {
	t.readPidFile()
	if t.rec.State != settling {
		return
	}
	if t.watching {
		t.happen(message{ev: evAlive})
		return
	}
	_, err := t.findMain()
	if err == nil {
		err = errors.New("its process came too late")
	}
	how := "succeeded"
	if t.rec.CommandUnseen {
		how = "ended while the process daemon was restarted, nobody knows how"
	}
	t.happen(message{ev: evNotAlive, failure: fmt.Sprintf(
		"process %q: pidFile %s: %v (%v after startCmd %q %s); let the start command write the pid of the process, raise startGracePeriod, or leave pidFile out if it stays in the foreground%s",
		t.rec.Spec.Name, t.rec.Spec.PidFile, err, max(t.rec.Spec.StartGrace, leastSettle).Round(time.Millisecond), t.rec.Spec.StartCmd, how, t.lastWords())})
}
