package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tandem/scheduler/wire"
)

// demo holds what the steps share.
type demo struct {
	out      *printer
	tandem   string
	examples string
	dir      string
	server   string
	// container tells whether a Docker Engine answers.
	container bool
	// seen are the ids of all taskgroups that there were.
	seen map[string]bool

	local *exec.Cmd
	ended chan error
	log   *os.File
}

// agents of the stack, and what tells them apart.
var attributes = []string{"zone:a;rack:r1", "zone:b;rack:r2", "zone:c;rack:r3"}

// start starts the stack and waits until it says that it is ready.
func (d *demo) start(ctx context.Context) error {
	d.out.step("Start the stack: an embedded Mesos master, three agents, the scheduler, the process daemon")
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	d.server = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	args := []string{
		"local", "--agents", strconv.Itoa(len(attributes)), "--data-dir", filepath.Join(d.dir, "data"),
		"--listen", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--master-port", strconv.Itoa(ports[1]), "--agent-port", strconv.Itoa(ports[2]),
	}
	for _, a := range attributes {
		args = append(args, "--attributes", a)
	}
	d.out.command(args...)
	if d.log, err = os.Create(filepath.Join(d.dir, "local.log")); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.local = exec.Command(d.tandem, args...) //nolint:noctx // stop ends it, after everything else
	d.local.Stdout, d.local.Stderr = d.log, d.log
	d.local.Env = append(os.Environ(), "NO_COLOR=1")
	// Ctrl-C is for the demo, which then stops the stack in order.
	d.local.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.local.Start(); err != nil {
		d.local = nil
		return fmt.Errorf("demo: starting %s: %w", d.tandem, err)
	}
	d.ended = make(chan error, 1)
	go func() { d.ended <- d.local.Wait() }()
	err = d.until(ctx, 60*time.Second, "the stack is ready", func() error {
		select {
		case err := <-d.ended:
			d.local = nil
			return fatal{fmt.Errorf("tandem local has ended: %w", err)}
		default:
		}
		if !strings.Contains("\n"+d.said(), "\nready\n") {
			return errors.New("it has not said \"ready\" yet")
		}
		return nil
	})
	d.out.block(d.said())
	if err == nil {
		d.out.good("the stack is ready")
	}
	return err
}

// said is what tandem local has written.
func (d *demo) said() string {
	text, err := os.ReadFile(d.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// stop ends the stack as Ctrl-C does, and demands that it ends well.
func (d *demo) stop() error {
	if d.local == nil {
		return nil
	}
	if err := d.local.Process.Signal(syscall.SIGINT); err != nil {
		return fmt.Errorf("demo: stopping tandem local: %w", err)
	}
	select {
	case err := <-d.ended:
		if err != nil {
			return fmt.Errorf("demo: tandem local ended with %w; it said:\n%s", err, d.said())
		}
		return nil
	case <-time.After(60 * time.Second):
		_ = d.local.Process.Kill() // it did not end; the error below is the finding
		return errors.New("demo: tandem local did not end within a minute of Ctrl-C")
	}
}

// run runs the command line as a user would and returns what it prints.
func (d *demo) command(ctx context.Context, show bool, args ...string) (string, error) {
	if show {
		d.out.command(args...)
	}
	cmd := exec.CommandContext(ctx, d.tandem, args...)
	cmd.Env = append(os.Environ(), "TANDEM_SERVER="+d.server, "NO_COLOR=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if show {
		d.out.block(out.String())
	}
	if err != nil {
		return out.String(), fmt.Errorf("tandem %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// taskgroups asks for all taskgroups as scripts do.
func (d *demo) taskgroups(ctx context.Context) ([]wire.Taskgroup, error) {
	text, err := d.command(ctx, false, "get", "taskgroups", "-A", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []wire.Taskgroup `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("tandem get taskgroups -o json: %w", err)
	}
	for i := range list.Items {
		if id := list.Items[i].ID; id != "" {
			d.seen[id] = true
		}
	}
	return list.Items, nil
}

// of returns the taskgroups of one workload.
func of(groups []wire.Taskgroup, name string) []wire.Taskgroup {
	var out []wire.Taskgroup
	for i := range groups {
		if groups[i].Owner.Name == name {
			out = append(out, groups[i])
		}
	}
	return out
}

// fatal ends a wait at once.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// until repeats a look until it finds nothing amiss.
func (d *demo) until(ctx context.Context, limit time.Duration, what string, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		var f fatal
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("demo: waited %v in vain until %s: %w", limit, what, err)
		case <-tick.C:
		}
	}
}

// evidence shows what may explain a failure.
func (d *demo) evidence() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	d.out.note("how things stand:")
	if _, err := d.command(ctx, true, "get", "all", "-A"); err != nil {
		d.out.note("%v", err)
	}
	logs, err := filepath.Glob(filepath.Join(d.dir, "data", "log", "*"))
	if err != nil {
		return
	}
	for _, path := range logs {
		if text, err := os.ReadFile(path); err == nil {
			d.out.note("the end of %s:", path)
			d.out.block(string(text[max(0, len(text)-1500):]))
		}
	}
}

// freePorts finds ports that are free on all addresses of the agents.
func freePorts(n int) ([]int, error) {
	var ports []int
	for try := 0; len(ports) < n && try < 100; try++ {
		first, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
		if err != nil {
			return nil, fmt.Errorf("demo: finding a free port: %w", err)
		}
		defer first.Close()
		_, port, err := net.SplitHostPort(first.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
		free := true
		for i := 2; i <= len(attributes); i++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:%s", i, port)) //nolint:noctx // returns at once
			if err != nil {
				free = false
				break
			}
			defer l.Close()
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
		if free {
			ports = append(ports, number)
		}
	}
	if len(ports) < n {
		return nil, errors.New("demo: no free ports")
	}
	return ports, nil
}
