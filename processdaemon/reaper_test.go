package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"tandem/internal/journal"
	"tandem/internal/procid"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// TestFailedCleanUpIsTriedAgain: what cannot be cleaned up is tried again, less and less
// often, until it succeeds, also where nothing else happens.
func TestFailedCleanUpIsTriedAgain(t *testing.T) {
	t.Parallel()
	const failures = 4
	var tries atomic.Int32
	d := newDaemon(t, func(o *Options) {
		o.ReapInterval = 10 * time.Millisecond
		o.Cleaners = map[string]Cleaner{"thing": func(context.Context, journal.Record) error {
			if tries.Add(1) <= failures {
				return errors.New("not yet")
			}
			return nil
		}}
	})
	began := time.Now()
	o, err := d.journal.Own("dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.PutVolatile("thing", "x", nil); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it was cleaned up", func() bool {
		recs, err := d.journal.Records()
		return err == nil && len(recs) == 0
	})
	// 10, 20, 40 and 80 ms.
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("%d tries took %v only", tries.Load(), took)
	}
	eventually(t, "it is over", func() bool {
		return !d.reaper.failing() && !exists(filepath.Join(d.opts.DataDir, "journal/owners/dead.lock"))
	})
	if n := tries.Load(); n != failures+1 {
		t.Errorf("%d tries", n)
	}
}

func childOwner(dir string) int {
	j, err := journal.Open(filepath.Join(dir, "data", "journal"))
	if err == nil {
		var o *journal.Owner
		if o, err = j.Own("victim"); err == nil {
			err = errors.Join(o.PutVolatile(KindProcess, "a", nil), o.PutVolatile(KindProcess, "never-created", nil))
		}
	}
	if err == nil {
		c := client.New(filepath.Join(dir, "sock"))
		s := protocol.Spec{ID: "a", Owner: "victim", Leased: true, StartCmd: "sleep 60", Sandbox: filepath.Join(dir, "sandbox")}
		if _, err = c.Create(context.Background(), &s); err == nil {
			s.ID = "b" // leased, without a record
			_, err = c.Create(context.Background(), &s)
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	time.Sleep(time.Hour) // a program that waits for nothing is ended as deadlocked
	return 0
}

// TestFaultDeadOwnerIsReaped: kill -9 of an executor ends its tasks within a
// second or so, and nobody else's. The daemon learns of it from the kernel: it would not look
// again by itself while the test runs.
func TestFaultDeadOwnerIsReaped(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.env = []string{reapEnv + "=1h"}
	p.start("")
	p.createAndStart(p.spec("other", "sleep 60"))
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), exposerEnv+"="+p.dir)
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	buf := make([]byte, 100)
	n, _ := out.Read(buf)
	if string(buf[:n]) != "ready\n" {
		t.Fatal(string(buf[:n]))
	}
	for _, id := range []string{"a", "b"} {
		p.await(id, ready)
		p.must("start", func(ctx context.Context) error { _, err := p.c.Start(ctx, id, 0); return err })
	}
	a, b := p.await("a", running), p.await("b", running)
	begin := time.Now()
	_ = owner.Process.Kill()
	_ = owner.Wait()
	eventually(t, "the dead owner's tasks are gone", func() bool {
		all, err := p.c.List(context.Background(), "victim")
		return err == nil && len(all) == 0
	})
	t.Logf("reaped after %v", time.Since(begin))
	for _, pid := range []int{a.Pid, b.Pid} {
		if id, err := procid.Of(pid); err == nil && id.Alive() {
			t.Errorf("process %d lives", pid)
		}
	}
	p.await("other", running)
	eventually(t, "the journal is empty", func() bool {
		e1, _ := os.ReadDir(filepath.Join(p.dir, "data/journal/records"))
		e2, _ := os.ReadDir(filepath.Join(p.dir, "data/journal/owners"))
		return len(e1) == 0 && len(e2) == 0
	})
}
