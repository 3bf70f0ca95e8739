package container

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/journal"
	"tandem/internal/procid"
)

func TestRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in        api.ContainerTask
		add, drop []string
	}{
		{api.ContainerTask{}, nil, []string{"NET_RAW"}},
		{api.ContainerTask{Capabilities: api.Capabilities{Add: []string{"cap_net_raw", "SYS_PTRACE"}}}, []string{"NET_RAW", "SYS_PTRACE"}, nil},
		{api.ContainerTask{Capabilities: api.Capabilities{Drop: []string{"ALL"}, Add: []string{"CHOWN"}}}, []string{"CHOWN"}, []string{"ALL", "NET_RAW"}},
		{api.ContainerTask{Privileged: true, Capabilities: api.Capabilities{Drop: []string{"ALL"}}}, nil, nil},
	} {
		got, err := compileTask(t, "", func(e *executor.Task) { c.in.Image = "i"; e.Spec.Container = &c.in })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]string{c.add, c.drop}, [][]string{got.spec.HostConfig.CapAdd, got.spec.HostConfig.CapDrop}); diff != "" {
			t.Error(diff)
		}
	}
	_, err := compileTask(t, "", func(e *executor.Task) {
		e.Spec.Container.Capabilities.Add = []string{"NET_ADMINS"}
		e.Spec.Container.User, e.Spec.Container.PidsLimit, e.Spec.Container.Cpuset = "a b", -1, true
		e.Spec.Requests.CPUs = 0.5
	})
	var errs api.Errors
	if !errors.As(err, &errs) || len(errs) != 4 || !strings.Contains(err.Error(), "did you mean NET_ADMIN") {
		t.Errorf("%v", err)
	}
}

// TestRightsOnTheEngine looks from inside a container.
func TestRightsOnTheEngine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task(`id -u; id -g; touch /tmp/x 2>/dev/null || echo readonly; /bin/busybox grep CapBnd /proc/self/status; `+
		`/bin/busybox cat /proc/1/comm; ulimit -n; /bin/busybox df -m /dev/shm | /bin/busybox tail -1 | /bin/busybox awk '{print $2}'; pwd; hostname`, func(e *executor.Task) {
		c := e.Spec.Container
		c.User, c.ReadOnlyRoot, c.Init, c.PidsLimit, c.WorkingDir, c.Hostname = "app", true, true, 50, "/tmp", "inside"
		c.Parameters = []api.TaskParameter{{Key: "ulimit", Value: "nofile=123"}, {Key: "shm-size", Value: "7"}}
	})
	s := f.launch(task)
	exit, out := f.finish(task)
	lines := strings.Split(out, "\n")
	if exit.Code != 0 || len(lines) < 9 {
		t.Fatalf("%+v %q %q", exit, out, f.read(task, "stderr"))
	}
	// The engine's default set is 00000000a80425fb; NET_RAW is bit 13.
	want := []string{"4711", "4712", "readonly", "CapBnd:\t00000000a80405fb", "docker-init", "123", "7", "/tmp", "inside"}
	if diff := cmp.Diff(want, lines[:9]); diff != "" {
		t.Error(diff)
	}
	c, err := docker.ContainerInspect(f.ctx(), s.ContainerID)
	if err != nil || c.HostConfig.PidsLimit == nil || *c.HostConfig.PidsLimit != 50 {
		t.Errorf("%v, pids limit %v", err, c.HostConfig.PidsLimit)
	}
}

// TestE13LeasedCPUsAreFreeWithTheirContainer: two containers of two executors never share a CPU, and
// one that finds none is told so and leaves nothing.
func TestE13LeasedCPUsAreFreeWithTheirContainer(t *testing.T) {
	t.Parallel()
	cpus, err := usableCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(cpus) < 2 {
		t.Skip("one CPU cannot be shared out")
	}
	f := newFixture(t, func(o *Options) { o.CPUs = cpus[:2] })
	other, err := f.journal.Own("0.other.tandem.c1.1")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Put(Kind, "x", Record{Name: "x", CPUs: cpus[:1]}); err != nil {
		t.Fatal(err)
	}
	want := func(n float64) func(*executor.Task) {
		return func(e *executor.Task) { e.Spec.Container.Cpuset, e.Spec.Requests.CPUs = true, n }
	}
	task := f.task("/bin/busybox grep Cpus_allowed_list /proc/self/status", want(1))
	f.launch(task)
	if _, out := f.finish(task); out != fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpus[1]) {
		t.Errorf("runs on %q", out)
	}
	second := f.task("true", want(1))
	if err := f.Create(f.ctx(), second); err == nil || !strings.Contains(err.Error(), "of the 2 of this agent 0 are free") {
		t.Errorf("second: %v", err)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.Create(f.ctx(), second); err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
	if err := other.Delete(Kind, "x"); err != nil {
		t.Fatal(err)
	}
}

// TestLeasesNeverOverlap: whatever the order in which executors lease and give
// back, at most one has a CPU, also when they do it at the same time.
func TestLeasesNeverOverlap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		j, err := journal.Open(dir)
		if err != nil {
			rt.Fatal(err)
		}
		usable := []int{0, 1, 3, 5, 7}[:rapid.IntRange(1, 5).Draw(rt, "usable")]
		wants := rapid.SliceOfN(rapid.IntRange(1, 3), 1, 6).Draw(rt, "wants")
		var wg sync.WaitGroup
		for i, n := range wants {
			o, err := j.Own(fmt.Sprint("o", i))
			if err != nil {
				rt.Fatal(err)
			}
			defer o.Close()
			r := &Runtime{opt: Options{Journal: o, CPUs: usable}}
			wg.Go(func() {
				_ = r.record(t.Context(), &task{id: "t", name: "n"}, &compiled{cpus: n}) // too few are free: fine here
			})
		}
		wg.Wait()
		all, err := j.Records()
		if err != nil {
			rt.Fatal(err)
		}
		boot, err := procid.BootID()
		if err != nil {
			rt.Fatal(err)
		}
		leased := len(usable) - len(freeCPUs(usable, all, boot, "", ""))
		if again := freeCPUs(usable, all, "the next boot", "", ""); len(again) != len(usable) {
			rt.Fatalf("after a reboot %v are free of %v", again, usable)
		}
		sum, least := 0, len(usable)+1
		for _, rec := range all {
			sum += wants[int(rec.Owner[1]-'0')]
		}
		for i, n := range wants {
			if !strings.Contains(fmt.Sprint(all), fmt.Sprint("o", i)) {
				least = min(least, n)
			}
		}
		if sum != leased {
			rt.Fatalf("%d CPUs are leased in %d records that ask for %d", leased, len(all), sum)
		}
		if free := len(usable) - leased; least <= free {
			rt.Fatalf("%d are free, and one that wanted %d got none", free, least)
		}
	})
}
