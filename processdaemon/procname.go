package processdaemon

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// procNamed tells whether a process goes by a name: the base name of its program, of
// argv[0], or of what its program runs, such as the script of an interpreter or the
// program of a loader, which is one of its first arguments. found says what it is.
func procNamed(pid int, want string) (found string, ok bool) {
	dir := fmt.Sprintf("/proc/%d", pid)
	// A program that was replaced on disk is shown with this suffix (proc_pid_exe(5)).
	exe, err := os.Readlink(dir + "/exe")
	exe = strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	if err == nil && exe == want {
		return exe, true
	}
	argv := arguments(dir + "/cmdline")
	script := ""
	if len(argv) > 0 {
		if goesBy(strings.TrimLeft(argv[0], "-"), want) { // login shells are "-sh"
			return want, true
		}
		const first = 8
		for _, a := range argv[1:min(len(argv), first)] {
			if strings.HasPrefix(a, "-") {
				continue
			}
			if goesBy(a, want) {
				return want, true
			}
			if script == "" {
				script = filepath.Base(a)
			}
		}
	}
	switch {
	case err != nil:
		return "a process whose program cannot be read", false
	case script != "":
		return fmt.Sprintf("%q called with %q", exe, script), false
	}
	return fmt.Sprintf("%q", exe), false
}

// goesBy tells whether an argument is a path to what has this name. Servers that
// set their title write it over the argument that is their own path: "nginx: master
// process", "bin/redis-server 127.0.0.1:6379".
func goesBy(argument, name string) bool {
	word, _, _ := strings.Cut(argument, " ")
	return filepath.Base(argument) == name || filepath.Base(strings.TrimSuffix(word, ":")) == name
}

// arguments reads what it takes to recognise a process (proc_pid_cmdline(5)).
func arguments(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	const most = 4096
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}
