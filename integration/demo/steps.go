package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"tandem/api"
	"tandem/scheduler/wire"
)

// walk does the steps between start and stop.
func (d *demo) walk(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		d.apply, d.fill, d.talk, d.killProcess, d.killContainer, d.scale, d.get, d.remove,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) apply(ctx context.Context) error {
	d.out.step("Apply the examples")
	if !d.container {
		d.out.note("No Docker Engine answers here, so the container part is left out: examples/build.sh has made no images,")
		d.out.note("and tandem would report each container task as failed, with that reason. Install and start an engine to see it.")
	}
	_, err := d.command(ctx, true, "apply", "-f", filepath.Join(d.examples, "artifacts"))
	return err
}

// fill waits until everything runs, and shows the table whenever it has changed.
func (d *demo) fill(ctx context.Context) error {
	d.out.step("Watch it fill until every taskgroup is RUNNING")
	shown := ""
	err := d.until(ctx, 120*time.Second, "all taskgroups run", func() error {
		groups, err := d.taskgroups(ctx)
		if err != nil {
			return err
		}
		var states []string
		var waits error
		for i := range groups {
			states = append(states, groups[i].State)
			if groups[i].State != wire.Running {
				waits = fmt.Errorf("%s is %s: %s", groups[i].Name, groups[i].State, groups[i].Message)
			}
		}
		if now := strings.Join(states, " "); now != shown {
			shown = now
			if _, err := d.command(ctx, true, "get", "taskgroups", "-A"); err != nil {
				return err
			}
		}
		if len(groups) == 0 {
			return errors.New("there are no taskgroups")
		}
		return waits
	})
	if err != nil {
		return err
	}
	d.out.good("every taskgroup is RUNNING")
	if _, err := d.command(ctx, true, "get", "agents"); err != nil {
		return err
	}
	return nil
}

// talk uses what runs, by the addresses and ports that were given out.
func (d *demo) talk(ctx context.Context) error {
	d.out.step("Talk to what runs, through the ports that it was given")
	groups, err := d.taskgroups(ctx)
	if err != nil {
		return err
	}
	redis := of(groups, "redis")
	if len(redis) != 1 {
		return fmt.Errorf("one redis expected, there are %d", len(redis))
	}
	at := address(&redis[0], 0)
	if err := d.until(ctx, 15*time.Second, "redis answers", func() error { return redisEcho(ctx, at) }); err != nil {
		return err
	}
	d.out.good("redis, a process, answers at %s: SET and GET give back what was stored", at)
	if _, err := d.command(ctx, true, "logs", "redis-0", "-n", "test", "--tail", "1"); err != nil {
		return err
	}
	for _, name := range []string{"web", "hello", "shop", "greeter"} {
		for _, g := range of(groups, name) {
			body, err := d.fetch(ctx, "http://"+address(&g, 0)+"/")
			if err != nil {
				return err
			}
			d.out.good("%s (%s) answers at %s: %s", g.Name, g.Tasks[0].Kind, address(&g, 0), firstLine(body))
		}
	}
	for _, g := range of(groups, "mixed") {
		d.out.note("%s is one taskgroup with a container and a process:", g.Name)
		for i := range g.Tasks {
			body, err := d.fetch(ctx, "http://"+address(&g, i)+"/")
			if err != nil {
				return err
			}
			d.out.good("%s, its %s, answers at %s: %s", g.Tasks[i].Name, g.Tasks[i].Kind, address(&g, i), firstLine(body))
		}
	}
	consul := of(groups, "consul")
	for i := range consul {
		g := &consul[i]
		// The three find one another by the addresses of their nodes.
		var body string
		err := d.until(ctx, 30*time.Second, g.Name+" has found its peers", func() (err error) {
			body, err = d.fetch(ctx, "http://"+address(g, 0)+"/health")
			return err
		})
		if err != nil {
			return err
		}
		d.out.good("%s (container) at %s has found its peers: %s", g.Name, address(g, 0), firstLine(body))
	}
	return nil
}

// killProcess ends a process behind Tandem's back.
func (d *demo) killProcess(ctx context.Context) error {
	d.out.step("Kill an instance from outside: a process, with SIGKILL")
	return d.comesBack(ctx, "web", func(g *wire.Taskgroup) error {
		pid := g.Tasks[0].Report.Pid
		d.out.note("kill -9 %d, the process of %s on %s", pid, g.Name, g.Agent)
		return syscall.Kill(pid, syscall.SIGKILL)
	})
}

// killContainer ends a container behind Tandem's back.
func (d *demo) killContainer(ctx context.Context) error {
	if !d.container {
		return nil
	}
	d.out.step("And a container, by the engine")
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return fmt.Errorf("demo: Docker Engine: %w", err)
	}
	defer engine.Close()
	return d.comesBack(ctx, "hello", func(g *wire.Taskgroup) error {
		id := g.Tasks[0].Report.ContainerID
		d.out.note("docker kill %s, the container of %s on %s", id[:12], g.Name, g.Agent)
		return engine.ContainerKill(ctx, id, "KILL")
	})
}

// comesBack kills instance 0 of a workload and waits for its successor, which must be another taskgroup and answer.
func (d *demo) comesBack(ctx context.Context, name string, kill func(*wire.Taskgroup) error) error {
	groups, err := d.taskgroups(ctx)
	if err != nil {
		return err
	}
	all := of(groups, name)
	if len(all) == 0 || len(all[0].Tasks) == 0 || all[0].Tasks[0].Report == nil {
		return fmt.Errorf("no running instance of %s", name)
	}
	old := &all[0]
	if err := kill(old); err != nil {
		return fmt.Errorf("demo: killing %s: %w", old.Name, err)
	}
	began := time.Now()
	var next *wire.Taskgroup
	err = d.until(ctx, 60*time.Second, old.Name+" is back", func() error {
		groups, err := d.taskgroups(ctx)
		if err != nil {
			return err
		}
		for _, g := range of(groups, name) {
			if g.Index == old.Index && g.ID != old.ID && g.State == wire.Running {
				next = &g
				return nil
			}
		}
		return fmt.Errorf("%s has no successor that runs", old.ID)
	})
	if err != nil {
		return err
	}
	if _, err := d.fetch(ctx, "http://"+address(next, 0)+"/"); err != nil {
		return err
	}
	d.out.good("%s is back after %.1f s as %s on %s, and answers at %s", old.Name, time.Since(began).Seconds(), next.ID, next.Agent, address(next, 0))
	if _, err := d.command(ctx, true, "get", "taskgroups", "-n", "test", old.Name); err != nil {
		return err
	}
	return nil
}

// scale goes up and down and counts.
func (d *demo) scale(ctx context.Context) error {
	d.out.step("Scale a process from 2 to 4 to 1")
	for _, n := range []int{4, 1} {
		if _, err := d.command(ctx, true, "scale", "process/web", "-n", "test", strconv.Itoa(n), "--wait", "--timeout", "60s"); err != nil {
			return err
		}
		groups, err := d.taskgroups(ctx)
		if err != nil {
			return err
		}
		web := of(groups, "web")
		if len(web) != n {
			return fmt.Errorf("%d taskgroups of web expected after --wait, there are %d", n, len(web))
		}
		for i := range web {
			if _, err := d.fetch(ctx, "http://"+address(&web[i], 0)+"/"); err != nil {
				return err
			}
		}
		d.out.good("%d of web, and each answers", n)
	}
	_, err := d.command(ctx, true, "get", "taskgroups", "-n", "test")
	return err
}

// get shows that scripts get back what was applied.
func (d *demo) get(ctx context.Context) error {
	d.out.step("Ask for what was applied, as a script would")
	text, err := d.command(ctx, false, "get", "process", "redis", "-n", "test", "-o", "json")
	if err != nil {
		return err
	}
	docs, _, err := api.Decode(strings.NewReader(text), "get -o json", api.Options{})
	if err != nil || len(docs) != 1 || docs[0].Ref().Name != "redis" {
		return fmt.Errorf("tandem get process redis -o json gives back %q: %w", text, err)
	}
	d.out.command("get", "process", "redis", "-n", "test", "-o", "json")
	d.out.good("%d bytes of JSON that could be applied again", len(text))
	return nil
}

// remove deletes everything and looks whether all has ended.
func (d *demo) remove(ctx context.Context) error {
	d.out.step("Delete everything")
	if _, err := d.command(ctx, true, "delete", "-f", filepath.Join(d.examples, "artifacts"), "--wait", "--timeout", "90s"); err != nil {
		return err
	}
	groups, err := d.taskgroups(ctx)
	if err != nil {
		return err
	}
	if len(groups) > 0 {
		return fmt.Errorf("%d taskgroups are left after delete --wait, the first is %s (%s)", len(groups), groups[0].Name, groups[0].State)
	}
	d.out.good("no taskgroup is left")
	return nil
}

// address is where others reach a task's first port.
func address(g *wire.Taskgroup, task int) string {
	if len(g.Tasks) <= task || len(g.Tasks[task].Ports) == 0 {
		return net.JoinHostPort(g.NodeIP, "0")
	}
	return net.JoinHostPort(g.NodeIP, strconv.Itoa(g.Tasks[task].Ports[0].HostPort))
}

// fetch gets a page; what has just started may need a moment to listen.
func (d *demo) fetch(ctx context.Context, url string) (string, error) {
	var body string
	err := d.until(ctx, 15*time.Second, url+" answers", func() error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return fatal{err}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			return err
		}
		if body = string(text); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, firstLine(body))
		}
		return nil
	})
	return body, err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// redisEcho stores a value and reads it back, in redis's protocol.
func redisEcho(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "SET tandem both-kinds\r\nGET tandem\r\n"); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	var got []string
	for len(got) < 3 && lines.Scan() {
		got = append(got, lines.Text())
	}
	if len(got) < 3 || got[0] != "+OK" || got[2] != "both-kinds" {
		return fmt.Errorf("redis at %s answered %q", address, got)
	}
	return nil
}

// engineAnswers tells whether a Docker Engine is there.
func engineAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return false
	}
	defer engine.Close()
	_, err = engine.ContainerList(ctx, container.ListOptions{Limit: 1})
	return err == nil && os.Getuid() == 0
}
