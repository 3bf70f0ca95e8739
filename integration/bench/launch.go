package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
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
	b.daemon = exec.CommandContext(ctx, filepath.Join(b.bin, "tandem-processd"), "--data-dir", b.data(), "--socket", b.socket(), "--workspace", filepath.Join(dir, "w"))
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

// running is an executor with one task that runs.
type running struct {
	b      *bench
	cmd    *exec.Cmd
	id     string
	took   time.Duration
	stderr bytes.Buffer
}

// launch starts an executor, gives it a task once it has subscribed, and
// measures from the LAUNCH_GROUP event until the update TASK_RUNNING.
func (b *bench) launch(ctx context.Context, spec api.TaskSpec) (*running, error) {
	b.number++
	r := &running{b: b, id: fmt.Sprintf("0.bench.test.local.%d", b.number)}
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
	spec.Version, spec.Name, spec.NodeIP = api.TaskSpecVersion, "task", "127.0.0.1"
	spec.Taskgroup = api.TaskgroupRef{ID: r.id, Name: "bench-0", Application: "bench", Namespace: "test", Cluster: "local", Size: 1}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	b.agent.send(r.id, &executor.Event{Type: executor.Event_LAUNCH_GROUP, LaunchGroup: &executor.Event_LaunchGroup{TaskGroup: mesos.TaskGroupInfo{Tasks: []mesos.TaskInfo{
		{Name: "task", TaskID: mesos.TaskID{Value: "task." + r.id}, AgentID: mesos.AgentID{Value: "bench"}, Data: data},
	}}}})
	at, err := r.await(mesos.TASK_RUNNING)
	if err != nil {
		return nil, errors.Join(err, r.kill())
	}
	r.took = at.Sub(began)
	return r, nil
}

// await waits for an update of the task.
func (r *running) await(state mesos.TaskState) (time.Time, error) {
	limit := time.After(30 * time.Second)
	for {
		select {
		case u := <-r.b.agent.received:
			switch {
			case u.status.TaskID.Value != "task."+r.id:
			case u.status.GetState() == state:
				return u.at, nil
			case u.status.GetState() == mesos.TASK_FAILED || u.status.GetState() == mesos.TASK_ERROR:
				return u.at, fmt.Errorf("the task is %s: %s", u.status.GetState(), u.status.GetMessage())
			}
		case <-limit:
			return time.Time{}, fmt.Errorf("no %s within 30 s; the executor said:\n%s", state, r.stderr.String())
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

func (r *running) kill() error {
	r.cmd.Process.Kill() //nolint:errcheck // it may have ended
	r.cmd.Wait()         //nolint:errcheck // killed, so it fails
	return nil
}

// processes measures the start of a process, and the memory of its executor.
func (b *bench) processes(ctx context.Context) ([]result, error) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return nil, err
	}
	spec := api.TaskSpec{
		Kind: api.TaskProcess, Network: api.TaskNetwork{Mode: "HOST"},
		Process: &api.ProcessTask{ProcName: "sleep", WorkPath: "${work_base_dir}/bench", StartCmd: sleep + " 1000"},
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

// memory reads what an idle executor holds for itself alone; see proc(5), smaps_rollup.
func (r *running) memory() ([]result, error) {
	time.Sleep(3 * time.Second) // it gives memory back a second after its tasks run
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", r.cmd.Process.Pid))
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
	dirty := values["Private_Dirty"]
	met := dirty <= 8
	return []result{
		{Name: "executor with one task, private dirty", Value: dirty, Unit: "MiB", Aim: "8 MiB", Met: &met},
		{Name: "executor with one task, PSS", Value: values["Pss"], Unit: "MiB"},
	}, nil
}

// containers measures the start of a container against the bare engine.
func (b *bench) containers(ctx context.Context) (results []result, err error) {
	const name = "launch of a container p50"
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err == nil {
		_, err = docker.Ping(ctx)
	}
	if err != nil {
		return []result{{Name: name, Unit: "ms", Note: "not measured: no Docker Engine: " + err.Error()}}, nil
	}
	defer docker.Close()
	img := fmt.Sprintf("tandem-bench-%d:latest", os.Getpid())
	if err := importBusybox(ctx, docker, img); err != nil {
		return nil, err
	}
	defer func() {
		_, rmErr := docker.ImageRemove(context.WithoutCancel(ctx), img, image.RemoveOptions{Force: true})
		err = errors.Join(err, rmErr)
	}()
	spec := api.TaskSpec{
		Kind: api.TaskContainer, Network: api.TaskNetwork{Mode: "HOST"},
		Container: &api.ContainerTask{Image: img, Command: []string{"/bin/sleep"}, Args: []string{"1000"}, PullPolicy: "Never"},
	}
	var took, floors []time.Duration
	for range b.rounds {
		floor, err := bare(ctx, docker, img)
		if err != nil {
			return nil, err
		}
		floors = append(floors, floor)
		r, err := b.launch(ctx, spec)
		if err != nil {
			return nil, fmt.Errorf("container task: %w", err)
		}
		took = append(took, r.took)
		if err := r.stop(); err != nil {
			return nil, fmt.Errorf("container task: %w", err)
		}
	}
	return latency("launch of a container", took, floors, 10*time.Millisecond), nil
}

// bare creates and starts a container by the Engine API alone.
func bare(ctx context.Context, docker *client.Client, img string) (time.Duration, error) {
	began := time.Now()
	c, err := docker.ContainerCreate(ctx, &container.Config{Image: img, Cmd: []string{"/bin/sleep", "1000"}}, &container.HostConfig{NetworkMode: "host"}, nil, nil, "")
	if err != nil {
		return 0, err
	}
	err = docker.ContainerStart(ctx, c.ID, container.StartOptions{})
	took := time.Since(began)
	return took, errors.Join(err, docker.ContainerRemove(context.WithoutCancel(ctx), c.ID, container.RemoveOptions{Force: true}))
}

// importBusybox makes an image of busybox; nothing is pulled.
func importBusybox(ctx context.Context, docker *client.Client, name string) error {
	binary, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return fmt.Errorf("%w; install busybox-static", err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(binary))}),
		func() error { _, err := w.Write(binary); return err }(),
		w.WriteHeader(&tar.Header{Name: "bin/sleep", Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}),
		w.Close(),
	)
	if err != nil {
		return err
	}
	body, err := docker.ImageImport(ctx, image.ImportSource{Source: &buf, SourceName: "-"}, name, image.ImportOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}
