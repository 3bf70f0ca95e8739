package procattr

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// output runs a shell script with these attributes.
func output(t *testing.T, a *Attrs, script string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", "read x; "+script)
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(cmd.Start); err != nil {
		t.Fatal(err)
	}
	err = a.Apply(cmd.Process.Pid)
	fmt.Fprintln(in)
	if werr := cmd.Wait(); err != nil || werr != nil {
		t.Fatal(err, werr, out.String())
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

const show0 = "umask; ulimit -Sn; ulimit -Hn; nice; grep NoNewPrivs /proc/self/status"

// TestAttributes: a process has them, and neither this program nor the next one has.
func TestAttributes(t *testing.T) {
	plain := output(t, &Attrs{}, show0)
	umask, nice := 0o027, 7
	a := &Attrs{NoNewPrivs: true, Umask: &umask, Nice: &nice, Rlimits: []Rlimit{{Name: "nofile", Soft: 111, Hard: 222}}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, want := output(t, a, show0), "0027 111 222 7 NoNewPrivs: 1"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	wg.Wait()
	if got := output(t, &Attrs{}, show0); got != plain || strings.Contains(got, "NoNewPrivs: 1") {
		t.Errorf("the next one has %q, before it was %q", got, plain)
	}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatal(tasks, err)
	}
	for _, f := range tasks {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "NoNewPrivs:\t1") {
			// One that is just ending does no harm.
			dir := filepath.Dir(f)
			for end := time.Now().Add(10 * time.Second); exists(dir) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if exists(dir) {
				t.Errorf("thread %s keeps no_new_privs", f)
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestNetNS(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	other := exec.Command("unshare", "-n", "sh", "-c", "echo up; read x")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Skip("cannot make a network namespace here:", err)
	}
	defer func() { in.Close(); _ = other.Wait() }()
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Skip("cannot make a network namespace here:", err)
	}
	path := fmt.Sprintf("/proc/%d/ns/net", other.Process.Pid)
	want, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	var inode uint64
	if _, err := fmt.Sscanf(want, "net:[%d]", &inode); err != nil {
		t.Fatal(err)
	}
	ns, err := OpenNetNS(path, inode)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	mine, _ := os.Readlink("/proc/self/ns/net")
	if got := output(t, &Attrs{NetNS: ns}, "readlink /proc/self/ns/net"); got != want || got == mine {
		t.Errorf("it is in %s, want %s", got, want)
	}
	if got := output(t, &Attrs{}, "readlink /proc/self/ns/net"); got != mine {
		t.Errorf("the next one is in %s, want %s", got, mine)
	}
	for path, inode := range map[string]uint64{"/proc/self/ns/mnt": 0, "/etc/passwd": 0, "/no/such/netns": 0, path: inode + 1} {
		if f, err := OpenNetNS(path, inode); err == nil {
			f.Close()
			t.Errorf("%s was taken for a network namespace with inode %d", path, inode)
		}
	}
}

func TestBadLimits(t *testing.T) {
	t.Parallel()
	for _, r := range []Rlimit{{Name: "nofiles"}, {Name: "nofile", Soft: 2, Hard: 1}} {
		if r.Check() == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	ok := Rlimit{Name: "core", Soft: 0, Hard: Unlimited}
	if err := ok.Check(); err != nil {
		t.Error(err)
	}
}
