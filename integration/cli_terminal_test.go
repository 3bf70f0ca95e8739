package integration

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/pty"
)

// seat is a user before a terminal: a shell that runs tandem once, and says how that ended.
type seat struct {
	t        *testing.T
	keys     *os.File // the master
	terminal *os.File
	screen   lockedBuffer
	shell    *exec.Cmd
}

// sit starts tandem on a new terminal of 91 times 33 characters.
func sit(t *testing.T, server string, args ...string) *seat {
	t.Helper()
	s := &seat{t: t}
	var err error
	if s.keys, s.terminal, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	s.resize(91, 33)
	// The shell is the terminal's first process, which outlives tandem and keeps it.
	s.shell = exec.Command("/bin/sh", append([]string{"-c", `"$@"; echo "ended with $?"; read -r again`, "sh", filepath.Join(harness.bin, "tandem")}, args...)...)
	s.shell.Env = append(os.Environ(), "TANDEM_SERVER="+server, "NO_COLOR=1")
	s.shell.Stdin, s.shell.Stdout, s.shell.Stderr = s.terminal, s.terminal, s.terminal
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&s.screen, s.keys)
	}()
	t.Cleanup(func() {
		s.terminal.Close()
		_ = s.keys.SetReadDeadline(time.Now())
		<-read
		s.keys.Close() // which ends the shell, by SIGHUP
		_ = s.shell.Wait()
		if t.Failed() {
			t.Logf("the screen:\n%s", s.screen.String())
		}
	})
	return s
}

func (s *seat) resize(width, height uint16) {
	s.t.Helper()
	if err := pty.SetSize(s.keys, width, height); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) types(text string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) sees(text string) {
	s.t.Helper()
	eventually(s.t, 10*time.Second, strconv.Quote(text)+" on the screen", func() bool { return strings.Contains(s.screen.String(), text) })
}

// cooked tells whether the terminal is as a shell has it: it shows what is typed
// and makes signals of keys.
func (s *seat) cooked() bool {
	s.t.Helper()
	attrs, err := unix.IoctlGetTermios(int(s.terminal.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	const bits = unix.ECHO | unix.ICANON | unix.ISIG
	return attrs.Lflag&bits == bits && attrs.Oflag&unix.OPOST != 0
}

// tandem is the pid of what the shell runs.
func (s *seat) tandem() int {
	s.t.Helper()
	pid := strconv.Itoa(s.shell.Process.Pid)
	b, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	child, convErr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || convErr != nil {
		s.t.Fatal(string(b), err, convErr)
	}
	return child
}

// gate passes connections to a server on until it is shut.
type gate struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func openGate(t *testing.T, server string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l}
	t.Cleanup(g.shut)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(server, "http://"))
			if err != nil {
				in.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, in, out)
			g.mu.Unlock()
			for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
				go func() { _, _ = io.Copy(to, from); to.Close() }()
			}
		}
	}()
	return g
}

func (g *gate) shut() {
	g.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
}

// TestCLITerminal: a shell in a container and one beside a process, before a real
// terminal: its size, at the start and when it changes; keys that are the remote
// shell's; the exit code; and the terminal as it was, however the session ends.
func TestCLITerminal(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "--wait", "-f", file(t, "nap.json", sleeper("nap", 1)))
	targets := map[string][]string{"nap-0": {"stty", "size"}}
	if harness.noEngine == "" {
		targets["box-0"] = []string{"busybox", "stty", "size"}
		s.ok("apply", "--wait", "-f", file(t, "a.json", `{"apiVersion":"v4","kind":"application","metadata":{"name":"box","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":1},
  "spec":{"instance":1,"template":{"spec":{"networkMode":"NONE","containers":[{"image":"`+harness.image+`","imagePullPolicy":"Never",
  "command":"/bin/sleep","args":["1000"],"resources":{"limits":{"cpu":"0.5","memory":"32"}}}]}}}}`))
	}
	for target, size := range targets {
		t.Run(target, func(t *testing.T) {
			t.Run("shell", func(t *testing.T) {
				u := sit(t, s.server, "exec", target, "-n", "test", "-it", "--", "/bin/sh")
				u.types(strings.Join(size, " ") + "\r")
				u.sees("33 91\r\n")
				if u.cooked() {
					t.Error("the terminal is not raw")
				}
				u.resize(120, 50)
				// The news takes its time to the other end.
				eventually(t, 10*time.Second, "the new size", func() bool {
					u.types(strings.Join(size, " ") + "\r")
					time.Sleep(50 * time.Millisecond)
					return strings.Contains(u.screen.String(), "50 120\r\n")
				})
				// Ctrl-C ends what the remote shell runs, and neither that nor tandem.
				u.types("echo star''ted; sleep 1000\r")
				u.sees("started")
				u.types("\x03")
				u.types("echo alive$((1+1))\r")
				u.sees("alive2")
				u.types("exit 7\r")
				u.sees("ended with 7")
				if !u.cooked() {
					t.Error("the terminal is not as it was")
				}
			})
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
				t.Run("signal "+sig.String(), func(t *testing.T) {
					u := sit(t, s.server, "exec", target, "-n", "test", "-it", "--", "/bin/sh", "-c", "echo u''p; sleep 1000")
					u.sees("up\r\n")
					if err := syscall.Kill(u.tandem(), sig); err != nil {
						t.Fatal(err)
					}
					u.sees("ended with ")
					if strings.Contains(u.screen.String(), "ended with 0") || !u.cooked() {
						t.Error("it ended well, or the terminal is not as it was")
					}
				})
			}
			t.Run("lost connection", func(t *testing.T) {
				g := openGate(t, s.server)
				u := sit(t, "http://"+g.Addr().String(), "exec", target, "-n", "test", "-it", "--", "/bin/sh", "-c", "echo u''p; sleep 1000")
				u.sees("up\r\n")
				g.shut()
				u.sees("the session has broken off, and how the command ends is not known")
				u.sees("ended with 1")
				if !u.cooked() {
					t.Error("the terminal is not as it was")
				}
			})
			t.Run("output to a file", func(t *testing.T) {
				// A terminal to type at is enough; the output may go elsewhere.
				u := sit(t, s.server, "exec", target, "-n", "test", "-t", "--", "/bin/sh", "-c", "exit 5")
				u.sees("ended with 5")
			})
		})
	}
}
