package processdaemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"tandem/internal/safepath"
	"tandem/processdaemon/protocol"
)

// The files of a logPath are where the process writes them, mostly beyond its sandbox, and once
// its record is gone nobody is there to read them with the right care. So the ends of those
// that it wrote to are copied into the sandbox before, where they live as long as its stdout
// and stderr do. Copied, because the next task of the same directory goes on writing to the
// files; and only the ends, because a task that fails again and again has a sandbox each time.

// How much is kept: of a file, of all, and of how many.
const (
	keptOfFile  = 4 << 20
	keptOfAll   = 16 << 20
	keptFiles   = 32
	keptAtATime = 64 << 10
)

// keepLogs copies what a task that has ended wrote to the files of its logPath into its sandbox. It may
// be repeated. A failure keeps nobody from removing the task.
func (t *task) keepLogs() {
	spec := &t.rec.Spec
	if spec.LogPath == "" || t.rec.StartBy == 0 {
		return
	}
	if err := t.copyLogs(); err != nil {
		t.log.Warn("what the task wrote to its logPath is not kept in its sandbox", "logPath", spec.LogPath, "err", err)
	}
}

func (t *task) copyLogs() error {
	p, err := t.place()
	if err != nil {
		return err
	}
	files, err := p.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has written none
	}
	var dir *os.Root
	errs := []error{err}
	left := int64(keptOfAll)
	for i, f := range files {
		// The newest come first. Times of files may be as coarse as a second.
		if i >= keptFiles || left <= 0 || f.Modified.Unix() < t.rec.Created.Unix() {
			break
		}
		if dir == nil {
			if dir, err = keptDir(t.sandbox); err != nil {
				return err
			}
			defer dir.Close()
		}
		n, err := p.copyEnd(f, dir, min(left, keptOfFile))
		if left -= n; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
		}
	}
	return errors.Join(errs...)
}

// keptDir opens the directory of a sandbox in which the copies are. The sandbox may be
// another user's, who could have put anything in its place.
func keptDir(sandbox string) (*os.Root, error) {
	root, err := safepath.OpenRoot(sandbox, false)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	const mode = 0o700
	if err := root.Mkdir(protocol.KeptLogs, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	dir, err := root.OpenRoot(protocol.KeptLogs)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	self, err := dir.Open(".")
	if err == nil {
		err = errors.Join(unix.Fstat(int(self.Fd()), &st), self.Close())
	}
	if err == nil && (int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0) {
		err = fmt.Errorf("%s in the sandbox is not the daemon's own", protocol.KeptLogs)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// copyEnd copies the last bytes of a file, and of its pieces, from the beginning of a line
// on where something is left out. It returns how many they are.
func (p *logPlace) copyEnd(f protocol.LogFile, dir *os.Root, most int64) (sum int64, err error) {
	w, err := freshFile(dir, f.Name)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, w.Close()); err == nil {
			err = dir.Chtimes(f.Name, f.Modified, f.Modified)
		} else {
			_ = dir.Remove(f.Name) // half of it is worse than what the error says
		}
	}()
	buf := make([]byte, keptAtATime)
	from := -most
	for sum < most {
		n, next, err := p.readAt(f.Name, from, buf[:min(int64(len(buf)), most-sum)])
		if err != nil || n == 0 {
			return sum, err
		}
		text := buf[:n]
		if sum == 0 && next > int64(n) {
			if i := bytes.IndexByte(text, '\n'); i >= 0 {
				text = text[i+1:]
			}
		}
		if _, err := w.Write(text); err != nil {
			return sum, err
		}
		sum, from = sum+int64(n), next
	}
	return sum, nil
}
