package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

const (
	// many is how many processes a daemon is to look after without effort.
	many = 1000
	// lanes is how many requests are under way at a time.
	lanes = 16
)

// crowd is a process daemon with many processes that do nothing.
type crowd struct {
	bin, dir string
	sleep    string
	c        *client.Client
	cmd      *exec.Cmd
	log      *os.File
}

// manyProcesses measures a process daemon with a thousand of them: how fast they are up and
// down, its memory and its rest, and how fast the next daemon has taken them up. The same
// is done with supervisord and with systemd-run, where there are these.
func manyProcesses(ctx context.Context, o options) (results []result, err error) {
	dir, err := os.MkdirTemp(o.dir, "many")
	if err != nil {
		return nil, err
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return nil, err
	}
	bareUp, bareDown, err := bareProcesses(ctx, sleep)
	if err != nil {
		return nil, err
	}
	c := &crowd{bin: o.bin, dir: dir, sleep: sleep, c: client.New(filepath.Join(dir, "s"))}
	defer c.c.Close()
	defer func() { err = errors.Join(err, c.end()) }()
	results, err = c.measure(ctx, bareUp, bareDown)
	if err != nil {
		return nil, err
	}
	for _, other := range []func() ([]result, error){
		func() ([]result, error) { return supervised(ctx, o, sleep, bareUp, bareDown) },
		func() ([]result, error) { return underSystemd(ctx, sleep, bareUp, bareDown) },
	} {
		more, err := other()
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
	}
	return results, nil
}

func (c *crowd) measure(ctx context.Context, bareUp, bareDown time.Duration) ([]result, error) {
	empty, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	info, err := c.c.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.Keeper == nil {
		return nil, errors.New("the daemon has no keeper")
	}
	rest, err := idleOf(ctx, info.Pid, info.Keeper.Pid)
	if err != nil {
		return nil, err
	}
	before, err := c.memory(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := together(many, lanes, func(i int) error { return c.up(ctx, i) }); err != nil {
		return nil, err
	}
	up := time.Since(began)
	time.Sleep(3 * time.Second) // it comes to rest
	quiet, err := idleOf(ctx, info.Pid, info.Keeper.Pid)
	if err != nil {
		return nil, err
	}
	after, err := c.memory(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.kill(); err != nil {
		return nil, err
	}
	again, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	if n, err := c.running(ctx); err != nil || n != many {
		return nil, errors.Join(err, fmt.Errorf("the next daemon has %d of %d processes", n, many))
	}
	began = time.Now()
	if err := together(many, lanes, func(i int) error { return c.down(ctx, i) }); err != nil {
		return nil, err
	}
	down := time.Since(began)
	if err := together(many, lanes, func(i int) error { return c.c.Delete(ctx, name(i)) }); err != nil {
		return nil, err
	}
	const kb = 1024
	results := []result{
		within(span(fmt.Sprintf("%d processes up", many), up, bareUp), 10*time.Second, "create, start, until each runs; floor: fork and exec alone"),
		within(span(fmt.Sprintf("%d processes down", many), down, bareDown), 5*time.Second, "SIGTERM, until nothing of each is left; floor: kill and wait alone"),
		within(span(fmt.Sprintf("daemon killed, %d processes taken up by the next", many), again, empty), time.Second, "until it answers; floor: the start of one that has none"),
		atMost(result{Name: "daemon, private memory a process", Value: kb * (after[0] - before[0]) / many, Unit: "KiB"}, 20, ""),
		{Name: "keeper, private memory a process", Value: kb * (after[1] - before[1]) / many, Unit: "KiB"},
	}
	for i, what := range []string{"daemon", "keeper"} {
		r := result{Name: fmt.Sprintf("%s with %d processes, idle", what, many), Value: quiet[i], Unit: "% of a core", Floor: rest[i]}
		if rest[i] > 0 {
			r.Ratio = quiet[i] / rest[i]
		}
		results = append(results, atMost(r, 0.1, "over "+idleTime.String()+"; floor: without processes"))
	}
	return results, nil
}

// span makes the line of a time that is taken once.
func span(name string, took, floor time.Duration) result {
	return result{Name: name, Value: milliseconds(took), Unit: "ms", Floor: milliseconds(floor), Ratio: float64(took) / float64(floor)}
}

func within(r result, aim time.Duration, note string) result {
	r = atMost(r, milliseconds(aim), note)
	r.Aim = aim.String()
	return r
}

func atMost(r result, aim float64, note string) result {
	met := r.Value <= aim
	r.Aim, r.Met, r.Note = fmt.Sprintf("%g %s", aim, r.Unit), &met, note
	return r
}

func name(i int) string { return fmt.Sprintf("p%04d", i) }

// bareProcesses starts and ends as many processes without anything around them.
func bareProcesses(ctx context.Context, sleep string) (up, down time.Duration, err error) {
	all := make([]*exec.Cmd, many)
	began := time.Now()
	err = together(many, lanes, func(i int) error {
		all[i] = exec.CommandContext(ctx, sleep, "100000")
		return all[i].Start()
	})
	up = time.Since(began)
	began = time.Now()
	for _, cmd := range all {
		if cmd != nil && cmd.Process != nil {
			cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		}
	}
	for _, cmd := range all {
		if cmd != nil && cmd.Process != nil {
			cmd.Wait() //nolint:errcheck // killed, so it fails
		}
	}
	return up, time.Since(began), err
}

// start starts the daemon and returns how long it took until it answered.
func (c *crowd) start(ctx context.Context) (time.Duration, error) {
	var err error
	if c.log == nil {
		if c.log, err = os.Create(filepath.Join(c.dir, "log")); err != nil {
			return 0, err
		}
	}
	c.cmd = exec.CommandContext(ctx, filepath.Join(c.bin, "tandem-processd"), "--default-user", "root", "--data-dir", filepath.Join(c.dir, "d"), "--socket", filepath.Join(c.dir, "s"),
		"--kill-on-exit", "--kill-grace", "1s")
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	began := time.Now()
	if err := c.cmd.Start(); err != nil {
		return 0, err
	}
	for time.Since(began) < patience {
		if _, err := c.c.Info(ctx); err == nil {
			return time.Since(began), nil
		}
		time.Sleep(time.Millisecond)
	}
	text, _ := os.ReadFile(c.log.Name()) // the error says enough without it
	return 0, fmt.Errorf("the process daemon does not answer after %v:\n%s", patience, text)
}

// kill ends the daemon alone.
func (c *crowd) kill() error {
	err := c.cmd.Process.Kill()
	c.cmd.Wait() //nolint:errcheck // killed, so it fails
	return err
}

// end ends the daemon with all that runs.
func (c *crowd) end() error {
	defer c.log.Close()
	if c.cmd == nil || c.cmd.Process == nil {
		return nil
	}
	c.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	return c.cmd.Wait()
}

// memory is the private memory of daemon and keeper in MiB.
func (c *crowd) memory(ctx context.Context) (out [2]float64, err error) {
	info, err := c.c.Info(ctx)
	if err != nil {
		return out, err
	}
	if info.Keeper == nil {
		return out, errors.New("the daemon has no keeper")
	}
	for i, pid := range []int{info.Pid, info.Keeper.Pid} {
		values, err := rollupOf(pid)
		if err != nil {
			return out, err
		}
		out[i] = values["Private_Dirty"] + values["Private_Clean"]
	}
	return out, nil
}

func (c *crowd) up(ctx context.Context, i int) error {
	s := &protocol.Spec{ID: name(i), Owner: "bench", StartCmd: c.sleep + " 100000", Sandbox: filepath.Join(c.dir, "sandbox", name(i))}
	st, err := c.c.Create(ctx, s)
	if err == nil && st.State != protocol.StateReady {
		err = fmt.Errorf("process %s is %s", s.ID, st.State)
	}
	if err == nil {
		st, err = c.c.Start(ctx, s.ID, patience)
	}
	if err == nil && st.State != protocol.StateRunning {
		err = fmt.Errorf("process %s is %s: %s", s.ID, st.State, st.Failure)
	}
	return err
}

func (c *crowd) down(ctx context.Context, i int) error {
	st, err := c.c.Stop(ctx, name(i), patience)
	for err == nil && st.State != protocol.StateEnded {
		st, err = c.c.Poll(ctx, name(i), st.Version, patience)
	}
	return err
}

func (c *crowd) running(ctx context.Context) (n int, err error) {
	all, err := c.c.List(ctx, "bench")
	for i := range all {
		if all[i].State == protocol.StateRunning {
			n++
		}
	}
	return n, err
}
