package processdaemon

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// These tests are named after the known problems of the process daemon of
// BCS that this one must not have.

func TestP1CommandsTakeArgumentsAndEnvironment(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for id, c := range map[string]struct{ cmd, want string }{
		"argv":     {"./show.sh --address x  a=b", "[--address] [x] [a=b] env=v path home=/root pwd"},
		"shell":    {`./show.sh "one arg" "$GREETING"`, "[one arg] [v] env=v path home=/root pwd"},
		"pipeline": {"./show.sh 1 | cat; ./show.sh 2", "[1] env=v path home=/root pwd\n[2] env=v path home=/root pwd"},
		"no-magic": {"./plain.sh x", "plain x"},
		"who":      {`test "$USER $LOGNAME" = "$(id -un) $(id -un)" && echo it is`, "it is"},
	} {
		s := spec(d, id, c.cmd)
		s.Env = []string{"GREETING=v", "HOME=/root"}
		write(t, filepath.Join(s.WorkPath, "show.sh"), `#!/bin/sh
for a; do printf '[%s] ' "$a"; done
[ "$PATH" = `+defaultPath+` ] && p=path
[ "$(pwd)" = `+s.WorkPath+` ] && w=pwd
echo "env=$GREETING $p home=$HOME $w"
`, 0o755)
		write(t, filepath.Join(s.WorkPath, "plain.sh"), "echo plain $1\n", 0o755)
		run(t, d, s)
		st := awaitState(t, d, id, ended)
		if got := strings.TrimSpace(read(t, filepath.Join(s.Sandbox, "stdout"))); got != c.want || st.Exit.Code != 0 {
			t.Errorf("%s: %q, want %q (%+v, %s)", id, got, c.want, st.Exit, st.Failure)
		}
	}
	for id, c := range map[string]struct{ cmd, want string }{
		"missing":    {"./start.sh", `process "name-missing": startCmd "./start.sh": no such file in workPath /`},
		"unknown":    {"no-such-program x", "no such program in PATH=" + defaultPath},
		"not-exec":   {"./data", "not executable (mode 0644)"},
		"no-interp":  {"./interp", "the interpreter that its first line or its ELF header names"},
		"directory":  {"./dir", "it is a directory"},
		"no-workdir": {"true", "no such directory; create it, or choose one below ${work_base_dir}"},
	} {
		s := spec(d, id, c.cmd)
		write(t, filepath.Join(s.WorkPath, "data"), "x", 0o644)
		write(t, filepath.Join(s.WorkPath, "interp"), "#!/no/such/interpreter\n", 0o755)
		write(t, filepath.Join(s.WorkPath, "dir/x"), "", 0o644)
		if id == "no-workdir" {
			s.WorkPath = "/no/such/directory"
		}
		run(t, d, s)
		if st := awaitState(t, d, id, ended); !strings.Contains(st.Failure, c.want) || st.Pid != 0 {
			t.Errorf("%s: %q, want %q", id, st.Failure, c.want)
		}
	}
}

func TestP2UserWithItsGroups(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	p := newProc(t)
	p.start("")
	s := p.spec("a", `grep -E "^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs):" /proc/self/status; ls /proc/self/fd | wc -l; ulimit -n; ulimit -c; id -un`)
	s.User = "nobody"
	p.createAndStart(s)
	if st := p.await("a", ended); st.Failure != "" {
		t.Fatal(st.Failure)
	}
	text := strings.Join(strings.Fields(read(t, filepath.Join(s.Sandbox, "stdout"))), " ")
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	// ls has 0, 1, 2 and the directory it reads.
	if text != "Uid: 65534 65534 65534 65534 Gid: 65534 65534 65534 65534 Groups: 65534 CapInh: 0000000000000000 CapPrm: 0000000000000000 CapEff: 0000000000000000 CapAmb: 0000000000000000 NoNewPrivs: 1 4 "+strconv.FormatUint(min(65536, files.Max), 10)+" 0 nobody" {
		t.Errorf("%s", text)
	}
	s = p.spec("b", "true")
	s.User = "no-such-user"
	p.must("create", func(ctx context.Context) error { _, err := p.c.Create(ctx, s); return err })
	if st := p.await("b", ended); !strings.Contains(st.Failure, `user "no-such-user": not known on this agent`) {
		t.Errorf("%+v", st)
	}
}

// TestP2NobodyIsRootUnasked: with a default user a task that names none is not root,
// and neither are its files; one that asks for root is.
func TestP2NobodyIsRootUnasked(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	d := newDaemon(t, func(o *Options) { o.DefaultUser = "nobody" })
	for id, user := range map[string]string{"nobody": "", "root": "root"} {
		s := spec(d, id, "id -un; touch mine; stat -c %U mine conf")
		s.User = user
		create(t, d, s)
		if err := d.PutFiles(id, []protocol.File{{Path: "conf", Mode: 0o600}}); err != nil {
			t.Fatal(err)
		}
		// The directory is made for whom the task runs as.
		if err := os.RemoveAll(s.WorkPath); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Start(id); err != nil {
			t.Fatal(err)
		}
		st := awaitState(t, d, id, ended)
		if got := strings.Fields(read(t, filepath.Join(s.Sandbox, "stdout"))); len(got) < 2 || got[0] != id || got[1] != id {
			t.Errorf("%v %+v", got, st)
		}
		// The same request again, also under another default, is the same task.
		d.opts.DefaultUser = "daemon"
		if _, err := d.Create(s); err != nil {
			t.Error(err)
		}
		d.opts.DefaultUser = "nobody"
	}
}

func TestP3PidFileIsTrimmedAndNamesMayBeScripts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	// The file has blanks and newlines, and the process is an interpreter whose
	// script is deleted while it runs.
	s := spec(d, "a", "./start.sh")
	s.PidFile, s.ProcName = "app.pid", "w.sh"
	write(t, filepath.Join(s.WorkPath, "start.sh"), "#!/bin/sh\n(sh ./w.sh & printf ' %s \\n\\n' $! > app.pid)\nexit 0\n", 0o755)
	write(t, filepath.Join(s.WorkPath, "w.sh"), "rm w.sh\nwhile :; do sleep 0.05; done\n", 0o755)
	run(t, d, s)
	awaitState(t, d, "a", running)
}

func TestP4ExitCodeIsKnownAndOneLookDoesNotStopIt(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := pidFileSpec(t, d, "a", "exec sleep 60")
	run(t, d, s)
	st := awaitState(t, d, "a", running)
	// The pid file vanishes, changes, comes back: the process is known by now.
	for _, content := range []string{"", "garbage", "1"} {
		write(t, filepath.Join(s.WorkPath, "app.pid"), content, 0o644)
	}
	now, err := d.Status("a")
	if err != nil || now.State != running || now.Pid != st.Pid {
		t.Errorf("%+v %v", now, err)
	}
	run(t, d, spec(d, "b", "exit 42"))
	if st := awaitState(t, d, "b", ended); st.Exit == nil || !st.Exit.Known || st.Exit.Code != 42 {
		t.Errorf("%+v", st.Exit)
	}
}

func TestP5StopIsAsynchronousAndBounded(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", `trap "" TERM; sleep 60 & setsid sleep 60 & while :; do sleep 0.1; done`)
	s.StopCmd = "sleep 60"
	run(t, d, s)
	awaitState(t, d, "a", running)
	begin := time.Now()
	if _, err := d.Stop("a", time.Hour); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the request took %v", took)
	}
	awaitState(t, d, "a", stopping)
	// Zero is no panic but an end at once, of everything.
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, d, "a", ended)
	if st.Exit == nil || st.Exit.Signal != int(syscall.SIGKILL) || time.Since(begin) > 10*time.Second {
		t.Errorf("%+v after %v", st.Exit, time.Since(begin))
	}
	if left := processesIn(s.WorkPath); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// P6, the executor that ignores KILL and loops over records that the daemon
// lost, belongs to the executor (tests of this name are there); the daemon's part is that what is
// unknown counts as gone.
func TestP6UnknownIsGone(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	if err := d.Delete(t.Context(), "never-seen"); err != nil {
		t.Error(err)
	}
	if _, err := d.Stop("never-seen", 0); !isCode(err, protocol.CodeNotFound) {
		t.Error(err)
	}
}

// TestP7NothingOutlivesItsExecutor: as long as its owner holds its lease a task is not
// touched, and once that is gone it is stopped and forgotten. TestFaultDeadOwnerIsReaped kills the owner.
func TestP7NothingOutlivesItsExecutor(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	owner, err := d.journal.Own("executor-1")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for id, name := range map[string]string{"mine": "executor-1", "not-leased": "executor-2"} {
		s := spec(d, id, "sleep 60")
		s.Owner, s.Leased = name, name == "executor-1"
		if s.Leased {
			if err := owner.Put("process", id, nil); err != nil {
				t.Fatal(err)
			}
		}
		pids = append(pids, run(t, d, s).Pid)
	}
	// The reaper looks at another owner's lease many times meanwhile.
	other, err := d.journal.Own("executor-3")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Put("process", "gone", nil); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reaper has looked", func() bool {
		owned, err := d.journal.Left("executor-3")
		return err == nil && len(owned) == 0
	})
	if st, err := d.Status("mine"); err != nil || st.State != running {
		t.Fatalf("a living owner's task: %+v %v", st, err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task is gone", func() bool { _, err := d.Status("mine"); return isCode(err, protocol.CodeNotFound) })
	if st, err := d.Status("not-leased"); err != nil || st.State != running {
		t.Errorf("%+v %v (%v)", st, err, pids)
	}
}

func TestP8RecordsAreAtomicDeletedAndQuarantined(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	tasks := filepath.Join(p.dir, "data/processd/tasks")
	for name, content := range map[string]string{
		"torn.json": `{"format":1,"spec":{"id":"x"`, shortHash("y") + ".json": `{"format":99,"spec":{"id":"y"},"state":"running"}`,
		shortHash("z") + ".json": `{"format":1,"spec":{"id":"z"},"state":"flying"}`, "empty.json": "", ".tmp-123": "half",
	} {
		write(t, filepath.Join(tasks, name), content, 0o600)
	}
	p.start("")
	p.createAndStart(p.spec("a", "sleep 60"))
	p.await("a", running)
	if e, _ := os.ReadDir(filepath.Join(p.dir, "data/processd/corrupt")); len(e) != 4 {
		t.Errorf("set aside: %v", e)
	}
	p.clear()
	p.stop(syscall.SIGKILL)
	p.start("")
	all, err := p.c.List(t.Context(), "")
	if err != nil || len(all) != 0 {
		t.Errorf("deleted tasks came back: %v %v", all, err)
	}
	if e, _ := os.ReadDir(tasks); len(e) != 0 {
		t.Errorf("left: %v", e)
	}
}

// TestP8CorruptRecordDoesNotOrphan: what the record named is found by its
// control group and killed.
func TestP8CorruptRecordDoesNotOrphan(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	s := p.spec("a", "sleep 60")
	p.createAndStart(s)
	p.await("a", running)
	p.stop(syscall.SIGKILL)
	write(t, filepath.Join(p.dir, "data/processd/tasks", shortHash("a")+".json"), "{", 0o600)
	p.start("")
	eventually(t, "the process is gone", func() bool { return len(processesIn(s.WorkPath)) == 0 })
}

func TestP9Packages(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	var served int
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		http.ServeFile(w, r, filepath.Join(d.opts.Workspace, "srv", filepath.Base(r.URL.Path)))
	}))
	defer srv.Close()
	// The name ends in letters of ".tar.gz", which must not be cut off.
	archive := filepath.Join(d.opts.Workspace, "srv/star.tar.gz")
	write(t, archive, "", 0o644)
	makeTarGz(t, archive, map[string]string{"start.sh": "#!/bin/sh\nexec sleep 60\n", "old": "old"})
	s1, s2 := spec(d, "1", "./start.sh"), spec(d, "2", "./start.sh")
	for _, s := range []*protocol.Spec{&s1, &s2} {
		s.URIs = []protocol.URI{{Value: srv.URL + "/star.tar.gz", PullPolicy: "Always"}}
		run(t, d, *s)
		awaitState(t, d, s.ID, running)
	}
	// A new version reaches the next task and not the ones that run.
	makeTarGz(t, archive, map[string]string{"start.sh": "#!/bin/sh\nexec sleep 61\n", "new": "new"})
	s3 := spec(d, "3", "./start.sh")
	s3.URIs = s1.URIs
	run(t, d, s3)
	awaitState(t, d, "3", running)
	if read(t, filepath.Join(s1.WorkPath, "old")) != "old" || read(t, filepath.Join(s3.WorkPath, "new")) != "new" {
		t.Error("versions are mixed up")
	}
	if _, err := os.Stat(filepath.Join(s1.WorkPath, "new")); err == nil {
		t.Error("a running task's directory was changed")
	}
	s4 := spec(d, "4", "true")
	s4.URIs = []protocol.URI{{Value: strings.Replace(srv.URL, "://", "://me:geheim@", 1) + "/gone.tar.gz?token=geheim"}}
	st := create(t, d, s4)
	if want := "uris[0]: fetch " + srv.URL + "/gone.tar.gz: the server answered 404 Not Found"; !strings.Contains(st.Failure, want) || strings.Contains(st.Failure, "geheim") {
		t.Errorf("%q, want %q", st.Failure, want)
	}
}

func TestP10LimitsAndOutput(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "echo out; echo err >&2; head -c 300m /dev/zero | tail >/dev/null")
	s.Limits = protocol.Limits{CPUs: 0.5, MemMB: 32}
	run(t, d, s)
	st := awaitState(t, d, "a", ended)
	if len(st.Notes) == 0 {
		if st.Exit == nil || st.Exit.Code == 0 && st.Exit.Signal == 0 {
			t.Errorf("the memory limit did not hold: %+v", st.Exit)
		}
	} else {
		t.Logf("limits cannot be enforced here: %v", st.Notes)
	}
	text, err := d.Tail("a", 1000)
	if err != nil || !strings.HasPrefix(text, "stdout:\nout\nstderr:\nerr") {
		t.Errorf("%q %v", text, err)
	}
	b := spec(d, "b", "exec tail /dev/zero")
	b.Limits.MemMB = 32
	run(t, d, b)
	if st := awaitState(t, d, "b", ended); len(st.Notes) == 0 && (st.Exit == nil || !st.Exit.OOMKilled) {
		t.Errorf("not told that memory ran out: %+v", st.Exit)
	}
}

func TestP11AllUrisAndQuotesInValues(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", `printf %s "$Q"; cat one two/two`)
	dir := filepath.Join(d.opts.Workspace, "srv")
	for _, n := range []string{"one", "two"} {
		write(t, filepath.Join(dir, n), n, 0o644)
	}
	s.URIs = []protocol.URI{{Value: "file://" + dir + "/one"}, {Value: dir + "/two", OutputDir: s.WorkPath + "/two"}}
	s.Env = []string{`Q=a "quoted" \value $x` + "\n"}
	run(t, d, s)
	awaitState(t, d, "a", ended)
	if got, want := read(t, filepath.Join(s.Sandbox, "stdout")), `a "quoted" \value $x`+"\nonetwo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFilesAndSecrets(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "cat conf/app.conf; sleep 60")
	create(t, d, s)
	victim := filepath.Join(d.opts.Workspace, "victim")
	write(t, victim, "untouched", 0o644)
	write(t, filepath.Join(s.WorkPath, "conf/x"), "", 0o644)
	if err := os.Symlink(victim, filepath.Join(s.WorkPath, "conf/app.conf")); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(d.opts.Workspace, "etc/secret")
	files := []protocol.File{
		{Path: "conf/app.conf", Content: []byte("conf\n"), Mode: 0o644},
		{Path: secret, Content: []byte("geheim"), Mode: 0o447, Secret: true},
	}
	if os.Getuid() == 0 {
		files[1].User = "nobody"
	}
	for range 2 {
		if err := d.PutFiles("a", files); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Start("a"); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", running)
	eventually(t, "its output", func() bool { return read(t, filepath.Join(s.Sandbox, "stdout")) == "conf\n" })
	if read(t, victim) != "untouched" {
		t.Error("a symlink was followed")
	}
	st, err := os.Stat(secret)
	if err != nil || st.Mode().Perm() != 0o440 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if sys := st.Sys().(*syscall.Stat_t); os.Getuid() == 0 && sys.Uid != 65534 {
		t.Errorf("owner %d", sys.Uid)
	}
	if e, _ := os.ReadDir(d.store.tasks()); len(e) != 1 || strings.Contains(read(t, filepath.Join(d.store.tasks(), e[0].Name())), "geheim") {
		t.Error("the secret is in the record")
	}
	if err := d.PutFiles("a", files); !isCode(err, protocol.CodeConflict) {
		t.Errorf("files for a running task: %v", err)
	}
	if err := d.PutFiles("a", []protocol.File{{Path: "x", User: "no-such-user"}}); err == nil {
		t.Error("unknown owner accepted")
	}
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(secret); !os.IsNotExist(err) {
		t.Error("the secret stays")
	}
}

func TestOutputIsNotWrittenThroughLinksOrPipes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for i, place := range []func(path string) error{
		func(p string) error { return os.Symlink(filepath.Join(d.opts.Workspace, "victim"), p) },
		func(p string) error { return syscall.Mkfifo(p, 0o644) },
	} {
		s := spec(d, strconv.Itoa(i), "echo x")
		if err := os.MkdirAll(s.Sandbox, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := place(filepath.Join(s.Sandbox, "stdout")); err != nil {
			t.Fatal(err)
		}
		run(t, d, s)
		if st := awaitState(t, d, s.ID, ended); !strings.Contains(st.Failure, "output file") {
			t.Errorf("%+v", st)
		}
	}
	if _, err := os.Stat(filepath.Join(d.opts.Workspace, "victim")); err == nil {
		t.Error("written through the link")
	}
}

func TestAllErrorsOfASpecAtOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	_, err := d.Create(protocol.Spec{ID: "a", Name: "redis", WorkPath: "rel", Env: []string{"NOEQUALS"}, URIs: []protocol.URI{{Value: "ftp://x/y", OutputDir: "rel"}}})
	for _, want := range []string{`process "redis": `, "sandbox", `workPath "rel"`, "startCmd", "env[0]", "outputDir", "ftp"} {
		if err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v: does not tell about %s", err, want)
		}
	}
}

func TestFullDiskRefusesStart(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	create(t, d, spec(d, "a", "sleep 60"))
	// The place of the record is taken by a directory, so it cannot be replaced.
	path := d.store.path("a")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Start("a"); !isCode(err, protocol.CodeInternal) || !strings.Contains(err.Error(), "was not started") {
		t.Fatalf("%v", err)
	}
	if st, _ := d.Status("a"); st.State != ready {
		t.Errorf("%+v", st)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Start("a"); err != nil {
		t.Error(err)
	}
}
