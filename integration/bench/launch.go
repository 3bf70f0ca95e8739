package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/api"
)

// bench is one run: an agent of ours, a process daemon, executors one after the other.
type bench struct {
	bin, dir string
	rounds   int
	agent    *agent
	daemon   *exec.Cmd
	number   int
}

func newBench(ctx context.Context, o options) (b *bench, err error) {
	dir, err := os.MkdirTemp(o.dir, "d")
	if err != nil {
		return nil, err
	}
	b = &bench{bin: o.bin, dir: dir, rounds: o.rounds}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.agent, err = newAgent(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "processd.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b.daemon = exec.CommandContext(ctx, filepath.Join(b.bin, "tandem-processd"), "--default-user", "root", "--data-dir", b.data(), "--socket", b.socket(), "--workspace", filepath.Join(dir, "w"))
	b.daemon.Stdout, b.daemon.Stderr = log, log
	b.daemon.Cancel = func() error { return b.daemon.Process.Signal(syscall.SIGTERM) }
	if err := b.daemon.Start(); err != nil {
		return nil, err
	}
	for range 1000 {
		if _, err := os.Stat(b.socket()); err == nil {
			return b, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name()) // the error says enough without it
	return nil, fmt.Errorf("the process daemon is not there after ten seconds:\n%s", text)
}

func (b *bench) data() string   { return filepath.Join(b.dir, "d") }
func (b *bench) socket() string { return filepath.Join(b.dir, "p.sock") }

func (b *bench) close() {
	if b.daemon != nil && b.daemon.Process != nil {
		b.daemon.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		b.daemon.Wait()                          //nolint:errcheck // as above
	}
	if b.agent != nil {
		b.agent.close()
	}
	os.RemoveAll(b.dir)
}

// running is an executor whose tasks run.
type running struct {
	b   *bench
	cmd *exec.Cmd
	id  string
	// tasks are the ids of its tasks, in their order, and pids the main process of each.
	tasks  []string
	pids   map[string]int
	took   time.Duration
	stderr bytes.Buffer
}

// launch starts an executor, gives it a taskgroup once it has subscribed, and
// measures from the LAUNCH_GROUP event until the last update TASK_RUNNING.
func (b *bench) launch(ctx context.Context, specs ...api.TaskSpec) (*running, error) {
	b.number++
	r := &running{b: b, id: fmt.Sprintf("0.bench.test.local.%d", b.number), pids: map[string]int{}}
	sandbox := filepath.Join(b.dir, "s", r.id)
	if err := os.MkdirAll(sandbox, 0o755); err != nil {
		return nil, err
	}
	r.cmd = exec.CommandContext(ctx, filepath.Join(b.bin, "tandem-executor"), "--data-dir", b.data(), "--processd-socket", b.socket(), "--publish-address", "127.0.0.1")
	r.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "MESOS_FRAMEWORK_ID=bench", "MESOS_EXECUTOR_ID=" + r.id, "MESOS_SLAVE_ID=bench",
		"MESOS_AGENT_ENDPOINT=" + b.agent.address, "MESOS_SANDBOX=" + sandbox, "MESOS_DIRECTORY=" + sandbox,
		"MESOS_CHECKPOINT=0", "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD=5secs",
	}
	r.cmd.Stderr = &r.stderr
	subscribed := b.agent.expect(r.id)
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	select {
	case <-subscribed:
	case <-time.After(10 * time.Second):
		return nil, errors.Join(fmt.Errorf("executor did not subscribe:\n%s", r.stderr.String()), r.kill())
	}
	// Let the executor come to rest, as it does between subscribing and a launch by an agent.
	time.Sleep(20 * time.Millisecond)
	var group mesos.TaskGroupInfo
	for i, spec := range specs {
		spec.Version, spec.Name, spec.NodeIP, spec.Position = api.TaskSpecVersion, fmt.Sprintf("task%d", i), "127.0.0.1", i
		spec.Taskgroup = api.TaskgroupRef{ID: r.id, Name: "bench-0", Application: "bench", Namespace: "test", Cluster: "local", Size: len(specs)}
		data, err := json.Marshal(spec)
		if err != nil {
			return nil, errors.Join(err, r.kill())
		}
		r.tasks = append(r.tasks, spec.Name+"."+r.id)
		group.Tasks = append(group.Tasks, mesos.TaskInfo{Name: spec.Name, TaskID: mesos.TaskID{Value: r.tasks[i]}, AgentID: mesos.AgentID{Value: "bench"}, Data: data})
	}
	began := time.Now()
	b.agent.send(r.id, &executor.Event{Type: executor.Event_LAUNCH_GROUP, LaunchGroup: &executor.Event_LaunchGroup{TaskGroup: group}})
	at, err := r.await(mesos.TASK_RUNNING)
	if err != nil {
		return nil, errors.Join(err, r.kill())
	}
	r.took = at.Sub(began)
	return r, nil
}

// await waits until each task is in this state, and returns when the last one came to it.
func (r *running) await(state mesos.TaskState) (time.Time, error) {
	limit := time.After(time.Minute)
	missing := map[string]bool{}
	for _, id := range r.tasks {
		missing[id] = true
	}
	for {
		select {
		case u := <-r.b.agent.received:
			id := u.status.TaskID.Value
			if !slices.Contains(r.tasks, id) {
				continue
			}
			var report api.TaskReport
			if err := json.Unmarshal(u.status.Data, &report); err == nil && report.Pid != 0 {
				r.pids[id] = report.Pid
			}
			got := u.status.GetState()
			if got == state {
				if delete(missing, id); len(missing) == 0 {
					return u.at, nil
				}
				continue
			}
			if got == mesos.TASK_FAILED || got == mesos.TASK_ERROR {
				return u.at, fmt.Errorf("the task is %s: %s", got, u.status.GetMessage())
			}
		case <-limit:
			return time.Time{}, fmt.Errorf("not all of %d tasks are %s within a minute; the executor said:\n%s", len(r.tasks), state, r.stderr.String())
		}
	}
}

// stop ends task and executor in an orderly way.
func (r *running) stop() error {
	r.b.agent.send(r.id, &executor.Event{Type: executor.Event_SHUTDOWN})
	if _, err := r.await(mesos.TASK_KILLED); err != nil {
		return errors.Join(err, r.kill())
	}
	return r.cmd.Wait()
}

// kill ends an executor after an error. It is asked first, so that nothing stays
// of what it runs.
func (r *running) kill() error {
	const patience = 20 * time.Second
	late := time.AfterFunc(patience, func() { r.cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	defer late.Stop()
	r.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // as above
	r.cmd.Wait()                          //nolint:errcheck // asked to end, so it may fail
	return nil
}

// processes measures the start of a process, and the memory of its executor.
func (b *bench) processes(ctx context.Context) ([]result, error) {
	spec, sleep, err := sleeper()
	if err != nil {
		return nil, err
	}
	var took, floors []time.Duration
	var memory []result
	for i := range b.rounds {
		began := time.Now()
		if err := exec.CommandContext(ctx, sleep, "0").Run(); err != nil {
			return nil, err
		}
		floors = append(floors, time.Since(began))
		r, err := b.launch(ctx, spec)
		if err != nil {
			return nil, fmt.Errorf("process task: %w", err)
		}
		took = append(took, r.took)
		if i == 0 {
			if memory, err = r.memory(); err != nil {
				return nil, errors.Join(err, r.kill())
			}
		}
		if err := r.stop(); err != nil {
			return nil, fmt.Errorf("process task: %w", err)
		}
	}
	return append(latency("launch of a process", took, floors, 5*time.Millisecond), memory...), nil
}

// sleeper is a process that does nothing, and the path of its program.
func sleeper() (api.TaskSpec, string, error) {
	sleep, err := exec.LookPath("sleep")
	return api.TaskSpec{
		Kind: api.TaskProcess, Network: api.TaskNetwork{Mode: "HOST"},
		Process: &api.ProcessTask{ProcName: "sleep", WorkPath: "${work_base_dir}/bench", StartCmd: sleep + " 1000"},
	}, sleep, err
}

// memory reads what an idle executor holds for itself alone.
func (r *running) memory() ([]result, error) {
	values, err := r.rollup()
	if err != nil {
		return nil, err
	}
	dirty := values["Private_Dirty"]
	const aim = 4
	met := dirty <= aim
	return []result{
		{Name: "executor with one task, private dirty", Value: dirty, Unit: "MiB", Aim: fmt.Sprintf("%d MiB", aim), Met: &met},
		{Name: "executor with one task, PSS", Value: values["Pss"], Unit: "MiB"},
	}, nil
}

// rollup reads the memory of an executor at rest in MiB; see proc(5), smaps_rollup.
func (r *running) rollup() (map[string]float64, error) {
	time.Sleep(3 * time.Second) // it gives memory back a second after its tasks run
	return rollupOf(r.cmd.Process.Pid)
}

// rollupOf reads the memory of a process in MiB.
func rollupOf(pid int) (map[string]float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			if kb, err := strconv.ParseFloat(f[1], 64); err == nil {
				values[strings.TrimSuffix(f[0], ":")] = kb / 1024
			}
		}
	}
	return values, nil
}
