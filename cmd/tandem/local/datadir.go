package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tandem/cmd/tandem/exit"
	"tandem/internal/atomicfile"
	"tandem/internal/filelock"
	"tandem/internal/unixhttp"
)

// dataDir is the stack's directory, held by this process alone. Below it:
//
//	local.lock   locked while a stack runs; says who holds it
//	state.json   what the last stack was and how it ended
//	mesos/       the embedded master's and agents' work directories, sandboxes included
//	scheduler/   the scheduler's store
//	tasks/       the data directory of executors and tandem-processd (journal, work_dir)
//	log/         the servers' logs
type dataDir struct {
	path string
	lock *filelock.Lock
	// made is the topmost directory that was made for this stack, or "".
	made string
}

// holder is the content of local.lock.
type holder struct {
	Pid    int    `json:"pid"`
	Server string `json:"server"`
}

// openDataDir makes and locks the directory. On failure, what it made is removed.
func openDataDir(path, server string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "data directory %s: %w", path, err)
	}
	made := firstMissing(path)
	if err := os.MkdirAll(path, 0o755); err != nil {
		if made != "" {
			os.Remove(made)
		}
		return nil, unusable(path, err)
	}
	lock, err := filelock.Try(filepath.Join(path, "local.lock"), 0o644)
	if errors.Is(err, filelock.ErrHeld) {
		defer lock.Release()
		return nil, exit.Errorf(exit.Refused, `data directory %s is in use by another "tandem local"%s: stop that one, or choose another with --data-dir`,
			path, readHolder(lock.File))
	}
	if err != nil {
		if made != "" {
			os.RemoveAll(made)
		}
		return nil, unusable(path, err)
	}
	d := &dataDir{path: path, lock: lock, made: made}
	text, err := json.Marshal(holder{Pid: os.Getpid(), Server: server})
	if err == nil {
		err = errors.Join(lock.File.Truncate(0), writeAt(lock.File, text))
	}
	if err != nil {
		d.Close()
		return nil, unusable(path, err)
	}
	return d, nil
}

// Close lets go of the directory.
func (d *dataDir) Close() { d.lock.Release() }

// Discard is Close for a stack that was never started: a directory that was
// made for it goes again.
func (d *dataDir) Discard() {
	if d.made != "" {
		os.RemoveAll(d.made)
	}
	d.Close()
}

func (d *dataDir) join(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

func writeAt(f *os.File, text []byte) error {
	_, err := f.WriteAt(text, 0)
	return err
}

func readHolder(lock *os.File) string {
	var h holder
	if err := json.NewDecoder(lock).Decode(&h); err != nil || h.Pid == 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d, %s)", h.Pid, h.Server)
}

func unusable(path string, err error) error {
	why := err.Error()
	var pe *fs.PathError
	if errors.As(err, &pe) {
		why = pe.Err.Error()
		if pe.Path != path {
			why = pe.Path + ": " + why
		}
	}
	return exit.Errorf(exit.Usage, "data directory %s cannot be used: %s; choose another with --data-dir or TANDEM_DATA_DIR", path, why)
}

// firstMissing is the topmost directory that making path would make, or "".
func firstMissing(path string) string {
	missing := ""
	for {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return missing
		}
		missing, path = path, filepath.Dir(path)
	}
}

// state is what one run leaves for the next.
type state struct {
	// Clean tells that the last stack stopped with nothing left running.
	Clean    bool      `json:"clean"`
	Machines []machine `json:"machines"`
	Master   int       `json:"masterPort"`
}

func (d *dataDir) readState() (state, bool, error) {
	var s state
	data, err := os.ReadFile(d.join("state.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, false, nil
	case err != nil:
		return s, false, fmt.Errorf("read the last run's state: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, false, fmt.Errorf("read the last run's state %s: %w; remove the file if the stack was stopped cleanly", d.join("state.json"), err)
	}
	return s, true, nil
}

func (d *dataDir) writeState(s state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(d.join("state.json"), append(data, '\n'), 0o644)
}

// runtimeDir makes the short directory for sockets that belongs to a data
// directory: always the same one, so that executors of an earlier run find the
// daemon of this one. A socket's path has at most 107 bytes (unix(7)).
func runtimeDir(dataDir string, getenv func(string) string, uid int) (string, error) {
	sum := sha256.Sum256([]byte(dataDir))
	name := "local-" + hex.EncodeToString(sum[:4])
	var dir string
	switch base := getenv("XDG_RUNTIME_DIR"); {
	case uid == 0:
		dir = filepath.Join("/run/tandem", name)
	case base != "" && len(base) < 64:
		dir = filepath.Join(base, "tandem", name)
	default:
		dir = filepath.Join("/tmp", fmt.Sprintf("tandem-%d", uid), name)
	}
	if err := unixhttp.CheckPath(filepath.Join(dir, "processd.sock")); err != nil {
		return "", err
	}
	// The parent may be in /tmp, where anybody could have made it before.
	for _, p := range []string{filepath.Dir(dir), dir} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			return "", fmt.Errorf("make the directory for sockets: %w", err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return "", fmt.Errorf("look at %s: %w", p, err)
		}
		if int(st.Uid) != uid || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 {
			return "", fmt.Errorf("%s is not a directory that only its owner, uid %d, may write: remove it", p, uid)
		}
	}
	return dir, nil
}

// removeRuntimeDir removes what runtimeDir made, and its parent when nothing else is there.
func removeRuntimeDir(dir string) {
	os.RemoveAll(dir)
	os.Remove(filepath.Dir(dir))
}
