package container

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/enginetest"
	"tandem/internal/failpoint"
	"tandem/internal/journal"
	"tandem/internal/procid"
)

// TestSilentEngineExitIsKnown: the engine says nothing, the container ends, and that is known.
func TestSilentEngineExitIsKnown(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("sleep 60")
	s := f.launch(task)
	p.Arm("", enginetest.Silence, -1)
	if err := syscall.Kill(s.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	exit, _ := f.finish(task)
	if exit.Known || !strings.Contains(exit.Message, "exit code is unknown") {
		t.Errorf("exit %+v", exit)
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("took %v", d)
	}
}

// TestSilentEngineStop: a container can be stopped while the engine hangs.
func TestSilentEngineStop(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task(`trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done`)
	s := f.launch(task)
	eventually(t, "output", func() bool { return strings.Contains(f.read(task, "stdout"), "up") })
	p.Arm("", enginetest.Silence, -1)
	if err := f.Stop(f.ctx(), task.ID, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	// Its zombie may be there a moment longer, until the engine's shim has collected it.
	if id, err := procid.Of(s.Pid); err == nil && id.Alive() {
		t.Error("stopped, but its process lives")
	}
}

// TestSilentEngineStopOfAPausedContainer: what is frozen does not die before it is thawed.
func TestSilentEngineStopOfAPausedContainer(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.launchUp("echo up; sleep 60")
	if err := f.docker.ContainerPause(f.ctx(), f.tasks[task.ID].containerID); err != nil {
		t.Fatal(err)
	}
	p.Arm("", enginetest.Silence, -1)
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Fatal(err)
	}
	if exit, _ := f.finish(task); exit.Known && exit.Code == 0 {
		t.Errorf("exit %+v", exit)
	}
}

// TestSilentEngineAndAPolicyThatWaits: with killWithoutEngine: false nothing is
// done behind the engine's back, and the error says so.
func TestSilentEngineAndAPolicyThatWaits(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.launchUp("echo up; sleep 60")
	waits := *f.opt.Policy
	waits.KillWithoutEngine = false
	f.opt.Policy = &waits
	p.Arm("", enginetest.Silence, -1)
	ctx, cancel := context.WithTimeout(f.ctx(), 4*time.Second)
	defer cancel()
	if err := f.Signal(ctx, task.ID, syscall.SIGTERM); err == nil || !strings.Contains(err.Error(), "killWithoutEngine") || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("signal: %v", err)
	}
	if err := f.Stop(ctx, task.ID, 0); err == nil {
		t.Error("stopped")
	}
	if over(f.started(task.ID).ended) {
		t.Error("ended all the same")
	}
	p.Clear()
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Error(err)
	}
}

// TestSilentEngineBlocksNobody: while calls for one task hang, everything that needs
// no engine is done at once, for this task and for others.
func TestSilentEngineBlocksNobody(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	runs := f.launchUp("echo up; sleep 60")
	hangs := f.task("true")
	p.Seen("")
	p.Arm("", enginetest.Silence, -1)
	ctx, cancel := context.WithCancel(f.ctx())
	created := make(chan error, 1)
	go func() { created <- f.Create(ctx, hangs) }()
	eventually(t, "the call hangs", func() bool { return len(p.Seen("/create$")) > 0 })
	begin := time.Now()
	if out, err := f.Tail(f.ctx(), runs.ID, 100); err != nil || out != "up\n" {
		t.Errorf("tail %q, %v", out, err)
	}
	if ids, err := f.List(f.ctx()); err != nil || len(ids) != 2 {
		t.Errorf("records %v, %v", ids, err)
	}
	if ns, err := f.Netns(f.ctx(), runs.ID); err != nil || ns == nil {
		t.Error("namespace:", err)
	} else {
		ns.Close()
	}
	if err := f.AllowSession(true); err != nil {
		t.Error(err)
	}
	// A call that asks the engine waits for it three times as long.
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	if err := f.Stop(f.ctx(), runs.ID, 0); err != nil {
		t.Error(err)
	}
	cancel()
	p.Clear()
	if err := <-created; err == nil {
		t.Error("created without an answer")
	}
}

// TestEngineBackInTime: an engine that answers again in time tells the exit code.
func TestEngineBackInTime(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	f.opt.ExitPatience = 30 * time.Second // the two tries that are lost take more than half of a second
	task := f.task("sleep 0.2; echo late; exit 9")
	f.launch(task)
	p.Arm("POST .*/wait$", enginetest.DropRequest, 2)
	if exit, out := f.finish(task); !exit.Known || exit.Code != 9 || out != "late\n" {
		t.Errorf("%+v %q", exit, out)
	}
}

// TestLostCreateResponse: the engine made the container, its answer got lost.
func TestLostCreateResponse(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("echo adopted")
	p.Arm("POST .*/containers/create$", enginetest.DropResponse, 1)
	f.launch(task)
	if exit, out := f.finish(task); exit.Code != 0 || out != "adopted\n" {
		t.Errorf("%+v %q", exit, out)
	}
	if n := len(f.containers()); n != 1 {
		t.Errorf("%d containers", n)
	}
}

// TestLostCreateRequest: it is unknown whether there is a container; the record outlives Remove.
func TestLostCreateRequest(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("echo never")
	p.Arm("POST .*/containers/create$", enginetest.DropRequest, 1)
	if err := f.Create(f.ctx(), task); err == nil {
		t.Fatal("created")
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Fatal(err)
	}
	if ids, _ := f.List(f.ctx()); len(ids) != 1 {
		t.Errorf("records %v", ids)
	}
}

// TestCreateAgainAfterLoss: a second attempt finds what the first one made.
func TestCreateAgainAfterLoss(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("echo second")
	p.Arm("POST .*/containers/create$", enginetest.DropResponse, 1)
	p.Arm("GET .*/containers/tandem-.*/json$", enginetest.DropRequest, 1)
	if err := f.Create(f.ctx(), task); err == nil {
		t.Fatal("created though nobody could know")
	}
	f.launch(task)
	if exit, out := f.finish(task); exit.Code != 0 || out != "second\n" {
		t.Errorf("%+v %q", exit, out)
	}
	if n := len(f.containers()); n != 1 {
		t.Errorf("%d containers", n)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Error(err)
	}
	if ids, _ := f.List(f.ctx()); len(ids) != 0 {
		t.Errorf("records %v", ids)
	}
}

func TestLostStartResponse(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("sleep 60")
	p.Arm("POST .*/start$", enginetest.DropResponse, 1)
	if s := f.launch(task); s.Pid == 0 {
		t.Errorf("%+v", s)
	}
}

// TestStartOutcomeUnknownStopEndsIt: Start cannot tell, Stop finds what runs.
func TestStartOutcomeUnknownStopEndsIt(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("sleep 60")
	if err := f.Create(f.ctx(), task); err != nil {
		t.Fatal(err)
	}
	p.Arm("POST .*/start$", enginetest.DropResponse, 1)
	p.Arm("GET .*/json$", enginetest.DropRequest, 2)
	if _, err := f.Start(f.ctx(), task.ID); err == nil {
		t.Fatal("started though nobody could know")
	}
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range f.containers() {
		if c.State == "running" {
			t.Errorf("%v still runs", c.Names)
		}
	}
}

func TestEngineErrorIsShown(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("true")
	p.Arm("POST .*/containers/create$", enginetest.Fail500, 1)
	err := f.Create(f.ctx(), task)
	if err == nil || !strings.Contains(err.Error(), "the storage driver is on fire") {
		t.Errorf("got %v", err)
	}
	if ids, _ := f.List(f.ctx()); len(ids) != 0 {
		t.Errorf("a record of what was refused: %v", ids)
	}
}

// TestOutputSurvivesHiccups: connections break, the output is whole and without repetition.
func TestOutputSurvivesHiccups(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("for i in $(seq 1 400); do echo line $i; [ $((i % 20)) = 0 ] && sleep 0.2; done")
	f.launch(task)
	for range 3 {
		time.Sleep(300 * time.Millisecond) // let it write; no outcome depends on how much
		p.HangUp()
	}
	_, out := f.finish(task)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 400 || lines[0] != "line 1" || lines[399] != "line 400" {
		t.Errorf("%d lines, first %q, last %q", len(lines), lines[0], lines[len(lines)-1])
	}
	if n := len(p.Seen("/logs$")); n < 2 {
		t.Errorf("connections to the log were not broken: %d", n)
	}
}

// TestCleaner: a dead executor's containers go, however far it came.
func TestCleaner(t *testing.T) {
	// Not parallel: failpoints belong to the process.
	for _, point := range []string{"container/created", "container/started", ""} {
		f := newFixture(t)
		task := f.task("sleep 60")
		if point != "" {
			failpoint.ForTest(t, point+"=1*error(dead)")
		}
		err := f.Create(f.ctx(), task)
		if err == nil {
			_, err = f.Start(f.ctx(), task.ID)
		}
		if (err == nil) != (point == "") {
			t.Fatalf("%s: %v", point, err)
		}
		bystander := newFixture(t)
		other := bystander.task("sleep 60")
		bystander.launch(other)

		f.Close()
		rec := onlyRecord(t, f.journal, f.owner.Name())
		for range 2 { // the second time there is nothing to do
			rec.Created = time.Now().Add(-time.Hour)
			if point == "container/started" {
				rec.BootID = "an earlier boot" // containers are still there after a reboot, and do not run
			}
			if err := NewCleaner("")(context.Background(), rec); err != nil {
				t.Errorf("%s: %v", point, err)
			}
		}
		if left := f.containers(); len(left) > 0 {
			t.Errorf("%s: left %v", point, left)
		}
		if n := len(bystander.containers()); n != 1 {
			t.Errorf("%s: a living executor's container was touched", point)
		}
	}
}

// TestCleanerIntentOnly: the executor died before the engine heard of the container, or just then.
func TestCleanerIntentOnly(t *testing.T) {
	f := newFixture(t)
	failpoint.ForTest(t, "container/recorded=error(dead)")
	task := f.task("true")
	if err := f.Create(f.ctx(), task); err == nil {
		t.Fatal("created")
	}
	rec := onlyRecord(t, f.journal, f.owner.Name())
	if err := NewCleaner("")(context.Background(), rec); err != nil {
		t.Error(err)
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestCleanerLeavesStrangersAlone: a container with the name of the record, but not the labels.
func TestCleanerLeavesStrangersAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 60")
	f.launch(task)
	rec := onlyRecord(t, f.journal, f.owner.Name())
	rec.Owner = "somebody.else"
	rec.Created = time.Now().Add(-time.Hour)
	if err := NewCleaner("")(context.Background(), rec); err != nil {
		t.Error(err)
	}
	if len(f.containers()) != 1 {
		t.Error("a stranger's container was removed")
	}
	if err := NewCleaner("unix:///nowhere/docker.sock")(context.Background(), rec); err == nil || !strings.Contains(err.Error(), "start a Docker Engine") {
		t.Errorf("no engine: %v", err)
	}
}

func onlyRecord(t *testing.T, j *journal.Journal, owner string) journal.Record {
	t.Helper()
	recs, err := j.Records()
	if err != nil || len(recs) != 1 || recs[0].Owner != owner || recs[0].Kind != Kind {
		t.Fatalf("records %+v, %v", recs, err)
	}
	return recs[0]
}
