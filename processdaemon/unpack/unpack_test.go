package unpack

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"tandem/internal/archive/archivetest"
	"tandem/internal/testkit"
)

const (
	probeEnv  = "UNPACK_TEST_PROBE"
	daemonEnv = "UNPACK_TEST_DAEMON"
)

// TestMain doubles as the child, and as one that tells what it can reach.
func TestMain(m *testing.M) {
	if os.Getenv(probeEnv) != "" {
		os.Exit(probe())
	}
	if Asked() {
		os.Exit(Main())
	}
	if dir := os.Getenv(daemonEnv); dir != "" {
		os.Exit(hangingDaemon(dir))
	}
	testkit.QuickEnd()
	os.Exit(m.Run())
}

func want(t testing.TB, path, content string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || string(b) != content {
		t.Errorf("%s: %q %v, want %q", path, b, err, content)
	}
}

// room is a directory to unpack into, a blob beside it and a canary.
type room struct {
	t         testing.TB
	dir       string
	blob, to  *os.File
	unchanged func()
	points    string
}

func newRoom(t testing.TB, blob []byte) *room {
	t.Helper()
	r := &room{t: t, dir: testkit.PublicDir(t)}
	r.unchanged = archivetest.Canary(t, filepath.Join(r.dir, "canary"))
	if err := os.WriteFile(filepath.Join(r.dir, "blob"), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.dir, "to"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]**os.File{"blob": &r.blob, "to": &r.to} {
		var err error
		if *f, err = os.Open(filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*f).Close() })
	}
	return r
}

func (r *room) run(j Job) error {
	r.t.Helper()
	if j.MaxBytes == 0 {
		j.MaxBytes, j.MaxFiles = 1<<30, 1000
	}
	if j.As != nil {
		if err := r.to.Chown(int(j.As.Uid), int(j.As.Gid)); err != nil {
			r.t.Fatal(err)
		}
	}
	runner := Runner{Points: r.points}
	err := runner.Run(r.t.Context(), j, r.blob, r.to, nil)
	r.unchanged()
	return err
}

var asNobody = &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{65534, 4242}}

// users are whom a child is run as: the test's own and, as root, another.
func users() map[string]*syscall.Credential {
	u := map[string]*syscall.Credential{"self": nil}
	if os.Geteuid() == 0 {
		u["nobody"] = asNobody
	}
	return u
}

func TestChildUnpacksAsItsUser(t *testing.T) {
	t.Parallel()
	archive := archivetest.Gzip(t, archivetest.Tar(t,
		archivetest.Entry{Name: "app/", Type: '5', Mode: 0o555}, archivetest.Entry{Name: "app/run.sh", Body: "#!/bin/sh\n", Mode: 0o750},
		archivetest.Entry{Name: "app/link", Type: '2', Link: "run.sh"}, archivetest.Entry{Name: "other/hard", Type: '1', Link: "app/run.sh"}))
	for who, as := range users() {
		r := newRoom(t, archive)
		if err := r.run(Job{Name: "a.tar.gz", As: as}); err != nil {
			t.Errorf("%s: %v", who, err)
			continue
		}
		want(t, filepath.Join(r.dir, "to/other/hard"), "#!/bin/sh\n")
		want(t, filepath.Join(r.dir, "to/app/link"), "#!/bin/sh\n")
		uid := uint32(os.Getuid())
		if as != nil {
			uid = as.Uid
		}
		for name, mode := range map[string]fs.FileMode{"app": fs.ModeDir | 0o755, "app/run.sh": 0o750, "other": fs.ModeDir | 0o755} {
			st, err := os.Lstat(filepath.Join(r.dir, "to", name))
			if err != nil || st.Sys().(*syscall.Stat_t).Uid != uid || st.Mode() != mode {
				t.Errorf("%s: %s: %v %v", who, name, st, err)
			}
		}
		plain := newRoom(t, []byte("text"))
		if err := plain.run(Job{Name: "conf", Mode: 0o640, As: as}); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		if st, err := os.Stat(filepath.Join(plain.dir, "to/conf")); err != nil || st.Mode() != 0o640 {
			t.Errorf("%s: %v %v", who, st, err)
		}
	}
}

func TestChildRefusesHostileArchives(t *testing.T) {
	t.Parallel()
	all := archivetest.HostileTars(t)
	maps.Copy(all, archivetest.BelowLinks(t))
	maps.Copy(all, archivetest.OnlyFresh(t))
	for what, archive := range archivetest.HostileZips(t) {
		all[what+".zip"] = archive
	}
	for who, as := range users() {
		for what, archive := range all {
			name := "a.tar"
			if strings.HasSuffix(what, ".zip") {
				name = "a.zip"
			}
			r := newRoom(t, archive)
			if err := r.run(Job{Name: name, As: as, MaxFiles: 5, MaxBytes: 100_000}); !errors.Is(err, ErrHostile) {
				t.Errorf("%s, %s: accepted, or refused for another reason: %v", who, what, err)
			}
		}
	}
}

func TestChildIsBounded(t *testing.T) {
	t.Parallel()
	r := newRoom(t, archivetest.Tar(t, archivetest.Entry{Name: "a", Body: strings.Repeat("x", 3000)}))
	if err := r.run(Job{Name: "plain", MaxBytes: 2000, MaxFiles: 5}); !errors.Is(err, ErrHostile) {
		t.Errorf("a plain file: %v", err)
	}
	// Zeros that shrink ten thousandfold.
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := newRoom(t, zw.EncodeAll(archivetest.Tar(t, archivetest.Entry{Name: "zeros", Body: strings.Repeat("\x00", 130<<20)}), nil))
	if err := bomb.run(Job{Name: "a.tar.zst"}); !errors.Is(err, ErrHostile) || !strings.Contains(err.Error(), "more than 1000 times its size") {
		t.Errorf("a bomb: %v", err)
	}
	// A frame that asks for more memory than anybody has.
	greedy := xzOf(t, archivetest.Tar(t, archivetest.Entry{Name: "a", Body: "x"}))
	header := greedy[12 : 12+4*(int(greedy[12])+1)]
	i := bytes.Index(header, []byte{0x21, 1}) // LZMA2 and the size of its properties
	header[i+2] = 40                          // 4 GiB, see the description of the .xz format, 5.3.1
	binary.LittleEndian.PutUint32(header[len(header)-4:], crc32.ChecksumIEEE(header[:len(header)-4]))
	if err := newRoom(t, greedy).run(Job{Name: "a.tar.xz"}); err == nil || !strings.Contains(err.Error(), "needs more memory than the 1024 MB") {
		t.Errorf("%v", err)
	}
	html := newRoom(t, []byte("<html>not found</html>"))
	if err := html.run(Job{Name: "a.tar.gz"}); err == nil || !strings.HasPrefix(err.Error(), "not a whole gzip file") {
		t.Errorf("%v", err)
	}
}

func TestKilledOrHangingChildIsAnError(t *testing.T) {
	t.Parallel()
	r := newRoom(t, archivetest.Tar(t, archivetest.Entry{Name: "a", Body: "x"}))
	r.points = "unpack/end=kill"
	if err := r.run(Job{Name: "a.tar"}); err == nil || !strings.Contains(err.Error(), "ended before it was done: signal: killed") {
		t.Errorf("%v", err)
	}
	r.points = "unpack/begin=panic"
	if err := r.run(Job{Name: "a.tar"}); err == nil || !strings.Contains(err.Error(), "ended before it was done: exit status 2 panic") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("not wanted any more")
	time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
	if err := (&Runner{Points: "unpack/begin=sleep(1h)"}).Run(ctx, Job{Name: "a.tar", MaxBytes: 1, MaxFiles: 1}, r.blob, r.to, nil); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	// Nor is one that is not wanted any more before its child is there taken for a lack of this machine's.
	var log bytes.Buffer
	early := Runner{Log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := early.Run(ctx, Job{Name: "a.tar", MaxBytes: 1, MaxFiles: 1}, r.blob, r.to, nil); !errors.Is(err, gone) || log.Len() > 0 {
		t.Errorf("%v; told: %s", err, log.String())
	}
	missing := Runner{Program: filepath.Join(r.dir, "nothing"), Log: slog.New(slog.DiscardHandler)}
	if err := missing.Run(t.Context(), Job{}, r.blob, r.to, nil); err == nil || !strings.Contains(err.Error(), "start a process that unpacks") {
		t.Errorf("%v", err)
	}
}

// TestChildEndsWithItsDaemon: also when the daemon is killed.
func TestChildEndsWithItsDaemon(t *testing.T) {
	t.Parallel()
	dir := testkit.PublicDir(t)
	for _, as := range []string{"self", "nobody"} {
		if os.Geteuid() != 0 && as != "self" {
			continue
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{daemonEnv + "=" + dir + ":" + as}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		_, err = fmt.Fscan(out, &pid)
		if err != nil {
			t.Error(err)
		}
		child, openErr := unix.PidfdOpen(pid, 0)
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer unix.Close(child)
		const patience = 15_000
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}, patience); n != 1 || err != nil {
			t.Errorf("%s: the child goes on: %d %v", as, n, err)
			_ = unix.PidfdSendSignal(child, unix.SIGKILL, nil, 0)
		}
	}
}

// hangingDaemon has a child that is confined and then does nothing, and tells its pid.
func hangingDaemon(arg string) int {
	dir, as, _ := strings.Cut(arg, ":")
	j := Job{Name: "x", MaxBytes: 1, MaxFiles: 1}
	if as == "nobody" {
		j.As = asNobody
	}
	f, err := os.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := Runner{Points: "unpack/begin=sleep(1h)"}
	r.Track = func() func(int) func() {
		return func(pid int) func() {
			// The first line comes when it is confined.
			pids <- pid
			return func() {}
		}
	}
	go r.Run(context.Background(), j, f, f, func(Progress) { fmt.Println(<-pids) })
	select {}
}

var pids = make(chan int, 1)

// landlockVersion is 0 on a kernel that has none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// TestConfinement asks a child what it can still do.
func TestConfinement(t *testing.T) {
	t.Parallel()
	const forNetwork, forSignals = 4, 6
	version := landlockVersion()
	for who, as := range users() {
		r := newRoom(t, nil)
		if as != nil {
			if err := r.to.Chown(int(as.Uid), int(as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		input, err := json.Marshal(Job{Name: "x", MaxBytes: 1000, As: as, Jail: os.Geteuid() == 0})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cmd := exec.Command("/proc/self/exe", Command)
		cmd.Env = []string{probeEnv + "=" + l.Addr().String()}
		cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(input)), []*os.File{r.blob, r.to}
		if version < forNetwork && os.Geteuid() == 0 {
			// What Landlock cannot do yet is done by the namespace that a child gets anyway.
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var p probed
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		r.unchanged()
		if p.Missing != "" {
			t.Logf("this kernel lacks %s", p.Missing)
			continue
		}
		for what, text := range p.Tried {
			if what == "signal the parent" && version < forSignals && as == nil {
				t.Logf("%s: %s: %s; Landlock %d does not know signals", who, what, text, version)
				continue
			}
			if text != "" {
				t.Errorf("%s: %s: %s", who, what, text)
			}
		}
		uid := os.Getuid()
		if as != nil {
			uid = int(as.Uid)
			if got := strings.Join(strings.Fields(p.Status["Groups"]), " "); got != "65534 4242" && got != "4242 65534" {
				t.Errorf("groups %q", got)
			}
		}
		if p.UID != uid || p.Status["NoNewPrivs"] != "1" {
			t.Errorf("%s: uid %d, %v", who, p.UID, p.Status)
		}
		for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
			if c := strings.Trim(p.Status[set], "0"); os.Geteuid() == 0 && c != "" {
				t.Errorf("%s: %s %s", who, set, p.Status[set])
			}
		}
		t.Log(who, p.How)
	}
}

type probed struct {
	How, Missing string
	UID          int
	Status       map[string]string
	// Tried is what was tried, and what is wrong.
	Tried map[string]string
}

// probe is the child of TestConfinement.
func probe() int {
	runtime.LockOSThread() // as Main does
	var j Job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		fmt.Println(err)
		return 1
	}
	status, err := os.Open("/proc/thread-self/status")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	out, err := probeConfined(&j, status)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	return 0
}

func probeConfined(j *Job, status *os.File) (*probed, error) {
	p := &probed{Status: map[string]string{}, Tried: map[string]string{}}
	var err error
	if p.How, p.Missing, err = confine(j); err != nil {
		return nil, err
	}
	p.UID = os.Getuid()
	b := make([]byte, 8<<10)
	n, err := status.Read(b)
	if err != nil {
		return nil, err
	}
	for l := range strings.SplitSeq(string(b[:n]), "\n") {
		name, value, _ := strings.Cut(l, ":")
		p.Status[name] = strings.TrimSpace(value)
	}
	refused := func(what string, err error) {
		p.Tried[what] = ""
		if err == nil {
			p.Tried[what] = "worked"
		}
	}
	may := func(what string, err error) {
		p.Tried[what] = ""
		if err != nil {
			p.Tried[what] = err.Error()
		}
	}
	_, err = os.ReadFile("/etc/passwd")
	refused("read /etc/passwd", err)
	_, err = os.ReadDir("..")
	if !j.Jail {
		refused("read ..", err)
	}
	_, err = os.ReadFile("../canary/canary")
	refused("read the canary", err)
	refused("write the canary", os.WriteFile("../canary/canary", []byte("dead"), 0o600))
	refused("write to /tmp", os.WriteFile("/tmp/escaped-by-a-test", nil, 0o600))
	_, err = net.Dial("tcp", os.Getenv(probeEnv))
	refused("connect", err)
	refused("mknod", unix.Mknod("dev", unix.S_IFCHR|0o600, 1<<8|3))
	refused("mkfifo", unix.Mkfifo("fifo", 0o600))
	refused("signal the parent", unix.Kill(os.Getppid(), 0))
	refused("become root", func() error {
		if os.Getuid() == 0 {
			return unix.Chown(".", 1, 1)
		}
		return unix.Setuid(0)
	}())
	may("mkdir", os.MkdirAll("a/b", 0o755))
	may("write", os.WriteFile("a/prog", []byte("#!/bin/sh\n"), 0o755))
	may("link", os.Link("a/prog", "a/b/prog"))
	may("symlink", os.Symlink("a/prog", "l"))
	may("remove", os.Remove("l"))
	refused("execute", syscall.Exec("a/prog", []string{"prog"}, nil))
	refused("grow a file", func() error {
		f, err := os.Create("big")
		if err != nil {
			return nil
		}
		defer f.Close()
		_, err = f.Write(make([]byte, 2000))
		return err
	}())
	return p, nil
}
