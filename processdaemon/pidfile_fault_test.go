package processdaemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// TestFaultPidFileNamesNoProcessOfTheTask: whatever stands in it or in its place, the
// start fails at the end of its grace with the reason, what it names is not touched,
// and the task can be asked and stopped meanwhile.
func TestFaultPidFileNamesNoProcessOfTheTask(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	stranger := exec.Command("sleep", "60")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	keeperPid := d.Info().Keeper.Pid
	secret := filepath.Join(testkit.PublicDir(t), "secret")
	write(t, secret, "geheim\n", 0o600)
	number := func(n string) string { return "echo " + n + " > app.pid" }
	cases := map[string]struct{ make, want string }{
		"init":          {number("1"), "process 1, which it names, was not started by this task"},
		"zero":          {number("0"), `it holds "0", which is no pid`},
		"negative":      {number("-1"), `it holds "-1", which is no pid`},
		"garbage":       {`printf '\001\377x y' > app.pid`, "which is no pid"},
		"empty":         {": > app.pid", "it is empty"},
		"too-big":       {number("99999999999999999999"), "which is no pid"},
		"wraps-around":  {number(strconv.Itoa(1<<32 + stranger.Process.Pid)), "is not alive"},
		"stranger":      {number(strconv.Itoa(stranger.Process.Pid)), "was not started by this task"},
		"daemon-itself": {number(strconv.Itoa(os.Getpid())), "was not started by this task"},
		"keeper":        {number(strconv.Itoa(keeperPid)), "was not started by this task"},
		"directory":     {"mkdir app.pid", "it is a directory, not a file"},
		"pipe":          {"mkfifo app.pid; sleep 60 > app.pid 3<> app.pid &", "it is a named pipe, not a file"},
		"device":        {"ln -s /dev/zero app.pid", "it is a device, not a file"},
		"link-to-self":  {"ln -s ./app.pid app.pid", "too many levels of symbolic links"},
		"to-nowhere":    {"ln -s nowhere app.pid", "there is no such file"},
		"secret-file":   {"ln -s " + secret + " app.pid", "it belongs to another user than the task's"},
	}
	if os.Getuid() != 0 {
		t.Log("a task of another user is left out: only root runs those")
		delete(cases, "secret-file")
	}
	for id, c := range cases {
		s := spec(d, id, "./start.sh")
		s.PidFile = "app.pid"
		if id == "secret-file" {
			s.User = "nobody"
		}
		write(t, filepath.Join(s.WorkPath, "start.sh"), "#!/bin/sh\n"+c.make+"\nexit 0\n", 0o755)
		if err := os.Chmod(s.WorkPath, 0o777); err != nil {
			t.Fatal(err)
		}
		run(t, d, s)
	}
	for id, c := range cases {
		st := awaitState(t, d, id, ended)
		if !strings.Contains(st.Failure, c.want) || strings.Contains(st.Failure, "geheim") || st.Pid != 0 {
			t.Errorf("%s: %q, want %q; pid %d", id, st.Failure, c.want, st.Pid)
		}
		if left := processesIn(filepath.Join(d.workBase(), id)); len(left) > 0 {
			t.Errorf("%s: left: %v", id, left)
		}
	}
	for _, pid := range []int{stranger.Process.Pid, keeperPid} {
		if id, err := procid.Of(pid); err != nil || !id.Alive() {
			t.Errorf("process %d was touched", pid)
		}
	}
}

// TestFaultPidFilePipeDoesNotStopTheTask: a pipe that is held open in the file's place
// is not read, so a stop during the grace is heard at once.
func TestFaultPidFilePipeDoesNotStopTheTask(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "./start.sh")
	s.PidFile, s.StartGrace = "app.pid", time.Hour
	write(t, filepath.Join(s.WorkPath, "start.sh"), "#!/bin/sh\nmkfifo app.pid\nsleep 60 3<> app.pid &\nexit 0\n", 0o755)
	run(t, d, s)
	awaitState(t, d, "a", settling)
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
}

// TestFaultPidFileComesLateOrIsReplaced, has blanks after the pid, or is a link: the
// process that it names in the end is the task's.
func TestFaultPidFileComesLateOrIsReplaced(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	// Each writes the pid of the true process to "true", too.
	const worker = `sh -c 'echo $$ > true; trap "exit 6" USR1; : > trapped; while :; do sleep 0.02; done'`
	cases := map[string]string{
		"blanks": `(` + worker + ` &) ; until [ -s true ]; do sleep 0.01; done; printf '%s \t\r\n \n' "$(cat true)" > app.pid`,
		"late":   `(` + worker + ` &) ; (until [ -s true ]; do sleep 0.01; done; sleep 0.1; cat true > app.pid) & exit 0`,
		"link":   `(` + worker + ` &) ; until [ -s true ]; do sleep 0.01; done; ln -s true app.pid`,
		// A launcher that runs on beside its successor.
		"replaced": `sleep 60 & echo $! > app.pid; (sleep 0.1; ` + worker + ` & until [ -s true ]; do sleep 0.01; done; cat true > x; mv x app.pid) & exit 0`,
		// One that ends before its successor has written its own pid.
		"handed-over": `sleep 0.1 & echo $! > app.pid; (sleep 0.2; ` + worker + ` & until [ -s true ]; do sleep 0.01; done; cat true > app.pid) & exit 0`,
		// Emptied and filled again, as by a shell's redirection.
		"torn": `(` + worker + ` &) ; until [ -s true ]; do sleep 0.01; done; : > app.pid; (sleep 0.1; head -c 1 true > app.pid; sleep 0.1; cat true > app.pid) & exit 0`,
	}
	for id, script := range cases {
		s := spec(d, id, "./start.sh")
		s.PidFile, s.StartGrace = "app.pid", time.Hour
		write(t, filepath.Join(s.WorkPath, "start.sh"), "#!/bin/sh\n"+script+"\n", 0o755)
		run(t, d, s)
	}
	for id := range cases {
		dir := filepath.Join(d.workBase(), id)
		awaitState(t, d, id, running)
		eventually(t, "its trap", func() bool { return exists(filepath.Join(dir, "trapped")) })
		// It may have run under the pid of a launcher before.
		want, err := strconv.Atoi(strings.TrimSpace(read(t, filepath.Join(dir, "true"))))
		if err != nil {
			t.Fatal(err)
		}
		await(t, d, id, func(st protocol.Status) bool { return st.Pid == want && st.State == running })
		if err := d.Signal(id, int(syscall.SIGUSR1)); err != nil {
			t.Fatal(err)
		}
		// What else runs keeps the end open until the grace is over: the stop ends it.
		eventually(t, "it ends", func() bool { return syscall.Kill(want, 0) != nil })
		if _, err := d.Stop(id, time.Minute); err != nil {
			t.Fatal(err)
		}
		if st := awaitState(t, d, id, ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 6}) {
			t.Errorf("%s: %+v %+v", id, st, st.Exit)
		}
	}
}

// TestFaultPidFileProcessEndsEarly: nothing takes its place, so its end is the
// reason, at once when nothing else of the task runs and else when the grace is over.
func TestFaultPidFileProcessEndsEarly(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for id, c := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"alone":  {"(sh -c 'echo $$ > app.pid; until [ -e go ]; do sleep 0.01; done; exit 4' &)\nuntil [ -s app.pid ]; do sleep 0.01; done", time.Hour},
		"others": {"sleep 60 &\n(sh -c 'echo $$ > app.pid; until [ -e go ]; do sleep 0.01; done; exit 4' &)\nuntil [ -s app.pid ]; do sleep 0.01; done", 4 * time.Second},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			s := spec(d, id, "./start.sh")
			s.PidFile, s.StartGrace = "app.pid", c.grace
			write(t, filepath.Join(s.WorkPath, "start.sh"), "#!/bin/sh\n"+c.script+"\nexit 0\n", 0o755)
			run(t, d, s)
			awaitTakenUp(t, d, s)
			write(t, filepath.Join(s.WorkPath, "go"), "", 0o644)
			st := awaitState(t, d, id, ended)
			if !strings.Contains(st.Failure, "ended within startGracePeriod") || !strings.Contains(st.Failure, "exit code 4") {
				t.Errorf("%+v %+v", st, st.Exit)
			}
		})
	}
}

// TestFaultPidFileProcName: program, argv[0], title and script are names of a process;
// a mismatch says what was found.
func TestFaultPidFileProcName(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	const titled = `(exec -a "server: master process ./server" sleep 60 & echo $! > app.pid)`
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	sleepProgram := filepath.Base(must(t)(filepath.EvalSymlinks(sleep)))
	shell := filepath.Base(must(t)(filepath.EvalSymlinks("/bin/sh")))
	cases := map[string]struct{ procName, script, want string }{
		"program":      {sleepProgram, "sleep 60 & echo $! > app.pid", ""},
		"script":       {"worker.sh", "./worker.sh & echo $! > app.pid", ""},
		"interpreter":  {shell, "./worker.sh & echo $! > app.pid", ""},
		"script-of-sh": {"worker.sh", "sh -u ./worker.sh & echo $! > app.pid", ""},
		"title":        {"server", titled, ""},
		// A loader is argv[0] and stays; the program's title replaces the argument that named it.
		"title-loaded": {"server", `sh -c 'while :; do sleep 0.05; done' --library-path lib "bin/server 127.0.0.1:6379" & echo $! > app.pid`, ""},
		// Known by its first name until its exec: looked at again.
		"after-exec": {sleepProgram, "(sh -c 'echo $$ > app.pid; until [ -e go ]; do sleep 0.01; done; exec sleep 60' &) ; (sleep 0.1; : > go) & exit 0", ""},
		"other":      {"mongod", "sleep 60 & echo $! > app.pid", fmt.Sprintf(`is %q called with "60" and not procName "mongod"`, sleepProgram)},
		"other-sh":   {"mongod", "./worker.sh & echo $! > app.pid", fmt.Sprintf(`is %q called with "worker.sh" and not procName "mongod"`, shell)},
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Log("a process with another title is left out: only bash makes one, and there is none")
		delete(cases, "title")
	}
	for id, c := range cases {
		s := spec(d, id, "./start.sh")
		s.PidFile, s.ProcName = "app.pid", c.procName
		interpreter := "/bin/sh"
		if id == "title" {
			interpreter = bash
		}
		if c.want == "" {
			s.StartGrace = time.Minute // it runs as soon as it has its name
		}
		write(t, filepath.Join(s.WorkPath, "worker.sh"), "#!/bin/sh\nwhile :; do sleep 0.05; done\n", 0o755)
		write(t, filepath.Join(s.WorkPath, "start.sh"), "#!"+interpreter+"\n"+c.script+"\n", 0o755)
		run(t, d, s)
	}
	for id, c := range cases {
		if c.want == "" {
			awaitState(t, d, id, running)
		} else if st := awaitState(t, d, id, ended); !strings.Contains(st.Failure, c.want) {
			t.Errorf("%s: %q, want %q", id, st.Failure, c.want)
		}
	}
}

func must(t *testing.T) func(string, error) string {
	return func(s string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestFaultPidFileThatIsNoneStays: what pidFile names is removed before a start only if
// it is a pid file of the task's user, for the daemon may remove anything.
func TestFaultPidFileThatIsNoneStays(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root could remove what is another user's")
	}
	const nobody = 65534
	for name, c := range map[string]struct {
		place func(path string) error
		uid   int
		stays bool
	}{
		"pid":           {func(p string) error { return os.WriteFile(p, []byte("4242\n"), 0o644) }, 0, false},
		"stale-of-user": {func(p string) error { return os.WriteFile(p, []byte("4242\n"), 0o644) }, nobody, false},
		"of-root":       {func(p string) error { return os.WriteFile(p, []byte("4242\n"), 0o644) }, -nobody, true},
		"text":          {func(p string) error { return os.WriteFile(p, []byte("root:x:0:0\n"), 0o644) }, 0, true},
		"empty":         {func(p string) error { return os.WriteFile(p, nil, 0o644) }, 0, true},
		"pipe":          {func(p string) error { return unix.Mkfifo(p, 0o644) }, 0, true},
		"directory":     {func(p string) error { return os.Mkdir(p, 0o755) }, 0, true},
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := c.place(path); err != nil {
			t.Fatal(err)
		}
		uid := max(c.uid, -c.uid)
		if c.uid > 0 {
			if err := os.Chown(path, c.uid, c.uid); err != nil {
				t.Fatal(err)
			}
		}
		err := removeOldPidFile(path, uid)
		if _, statErr := os.Lstat(path); (statErr == nil) != c.stays || (err != nil) != c.stays {
			t.Errorf("%s: stays: %v, want %v; %v", name, statErr == nil, c.stays, err)
		}
	}
}
