package processdaemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// TestFaultWantOfFilesEndsNobody: a daemon that may open fewer files than it has processes to watch
// takes none of them for gone, and watches them as soon as it can.
func TestFaultWantOfFilesEndsNobody(t *testing.T) {
	t.Parallel()
	const tasks, files = 30, 24
	p := newProc(t)
	p.start("")
	pids := map[string]int{}
	for i := range tasks {
		id := fmt.Sprint("t", i)
		p.createAndStart(p.spec(id, "until [ -e go ]; do sleep 0.05; done; exit 7"))
		pids[id] = p.await(id, running).Pid
	}
	p.stop(syscall.SIGKILL)
	p.env = []string{fmt.Sprintf("%s=%d", filesEnv, files)}
	p.launch("")
	log := filepath.Join(p.dir, "log")
	eventually(t, "some cannot be watched", func() bool {
		b, _ := os.ReadFile(log)
		return strings.Contains(string(b), "cannot be watched") || p.died()
	})
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4096, Max: 4096}, nil); err != nil {
		t.Fatal(err)
	}
	for id, pid := range pids {
		if st := p.await(id, running); st.Pid != pid {
			t.Errorf("%s: pid %d, was %d", id, st.Pid, pid)
		}
		p.must("signal", func(ctx context.Context) error { return p.c.Signal(ctx, id, unix.SIGCONT) })
		if now, err := procid.Of(pid); err != nil || !now.Alive() {
			t.Errorf("%s: it was ended", id)
		}
		write(t, filepath.Join(p.dir, "data/workspace/work_dir", id, "go"), "", 0o644)
	}
	for id := range pids {
		if st := p.await(id, ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 7}) {
			t.Errorf("%s: %+v", id, st.Exit)
		}
	}
	p.env = nil
}

// TestProgramOnANoexecFileSystem: the failure says why it cannot be run.
func TestProgramOnANoexecFileSystem(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "./program")
	if err := os.MkdirAll(s.WorkPath, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", s.WorkPath, "tmpfs", unix.MS_NOEXEC, "size=64k"); err != nil {
		t.Skipf("a file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(s.WorkPath, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(s.WorkPath, "program"), "#!/bin/sh\n", 0o755)
	run(t, d, s)
	if st := awaitState(t, d, "a", ended); !strings.Contains(st.Failure, "noexec") {
		t.Errorf("%q", st.Failure)
	}
}
