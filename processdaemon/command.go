package processdaemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// findProgram resolves argv[0] as a shell in dir would, with the task's PATH,
// and says clearly what is wrong when there is nothing to run.
func findProgram(argv0, dir string, env []string) (string, error) {
	if strings.Contains(argv0, "/") {
		return argv0, checkProgram(argv0, dir)
	}
	path := lookupEnv(env, "PATH")
	for _, d := range filepath.SplitList(path) {
		if d == "" {
			d = "."
		}
		p := d + "/" + argv0
		if checkProgram(p, dir) == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no such program in PATH=%s; name it with its directory, such as ./%s, or set PATH in env", path, argv0)
}

func checkProgram(name, dir string) error {
	full := name
	if !filepath.IsAbs(full) {
		full = filepath.Join(dir, name)
	}
	st, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		if filepath.IsAbs(name) {
			return errors.New("no such file; check the path, or fetch it with uris")
		}
		return fmt.Errorf("no such file in workPath %s; check startCmd, workPath and the outputDir of uris", dir)
	case err != nil:
		return err
	case st.IsDir():
		return errors.New("it is a directory; name a program in it")
	case st.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("not executable (mode %#o); set the bit in the archive or run it by its interpreter, such as: sh %s", st.Mode().Perm(), name)
	}
	return nil
}

// denied says why a user may not run a program in a directory: the first directory on
// the way that is closed to it by its mode, the only thing that can be told from here.
func denied(as *account, program, dir string) string {
	if !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	for _, path := range []string{dir, filepath.Dir(program)} {
		for at := 1; at <= len(path); at++ {
			if at < len(path) && path[at] != '/' {
				continue
			}
			st, err := os.Stat(path[:at])
			if err != nil {
				break
			}
			if sys, ok := st.Sys().(*syscall.Stat_t); ok && !mayEnter(as.cred, sys) {
				return fmt.Sprintf("user %q may not enter %s (mode %#o), which %s is in; open it (chmod +x) or choose another place", as.name, path[:at], st.Mode().Perm(), path)
			}
		}
	}
	return fmt.Sprintf("user %q may not enter workPath %s or run %s", as.name, dir, program)
}

// mayEnter tells what the mode of a directory says of a user; see path_resolution(7).
func mayEnter(cred *syscall.Credential, st *syscall.Stat_t) bool {
	bit := uint32(0o001)
	switch {
	case cred.Uid == 0:
		return true
	case cred.Uid == st.Uid:
		bit = 0o100
	case cred.Gid == st.Gid || slices.Contains(cred.Groups, st.Gid):
		bit = 0o010
	}
	return st.Mode&bit != 0
}

func lookupEnv(env []string, name string) string {
	// The last one wins, as it does for getenv(3) in most programs that merge lists.
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

func hasEnv(env []string, name string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, name+"=") {
			return true
		}
	}
	return false
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// fullEnv is the task's environment, exactly, with PATH, HOME, USER and LOGNAME when it lacks them, as
// systemd.exec(5) has it: start scripts of many servers ask for their user.
// A command beside the main process also has MAINPID, as in systemd.service(5): without a
// pid file it could not know it.
func fullEnv(env []string, as *account, mainPid int) []string {
	out := append(make([]string, 0, len(env)+5), env...)
	lacks := func(name, value string) {
		if value != "" && !hasEnv(out, name) {
			out = append(out, name+"="+value)
		}
	}
	if mainPid != 0 {
		lacks("MAINPID", strconv.Itoa(mainPid))
	}
	lacks("PATH", defaultPath)
	lacks("HOME", cmp.Or(as.home, "/"))
	lacks("USER", as.name)
	lacks("LOGNAME", as.name)
	return out
}
