package container

import (
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"

	"tandem/api"
	"tandem/executor"
)

// kinds shortens calls to what they are.
func kinds(calls []string) []string {
	var out []string
	for _, c := range calls {
		method, path, _ := strings.Cut(c, " ")
		out = append(out, method+" "+path[strings.LastIndexByte(path, '/')+1:])
	}
	return out
}

// TestCallsOfALaunch counts every call that a plain container costs at the engine
// from the first to the one that starts it, and those until it is gone.
func TestCallsOfALaunch(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"NONE", "HOST", "BRIDGE"} {
		f, p := behindProxy(t)
		task := f.task("sleep 60", func(e *executor.Task) { e.Spec.Network.Mode = mode })
		s := f.launch(task)
		if got, want := kinds(p.Seen("")), []string{"GET json", "POST create", "POST attach", "POST start"}; !slices.Equal(got, want) {
			t.Errorf("%s: launch: %v, want %v", mode, got, want)
		}
		// What the kernel told is what the engine tells.
		c, err := f.docker.ContainerInspect(f.ctx(), s.ContainerID)
		if err != nil {
			t.Fatal(err)
		}
		if s.Pid != c.State.Pid || s.Pid == 0 || s.At.IsZero() {
			t.Errorf("%s: %+v, the engine says pid %d", mode, s, c.State.Pid)
		}
		ip := ""
		if e := c.NetworkSettings.Networks["bridge"]; e != nil {
			ip = e.IPAddress
		}
		switch {
		case mode == "HOST" && !slices.Equal(s.IPs, []string{"127.0.0.1"}),
			mode == "NONE" && s.IPs != nil,
			mode == "BRIDGE" && (ip == "" || !slices.Equal(s.IPs, []string{ip})):
			t.Errorf("%s: addresses %v, the engine says %q", mode, s.IPs, ip)
		}
		if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
			t.Fatal(err)
		}
		f.finish(task)
		if err := f.Remove(f.ctx(), task.ID); err != nil {
			t.Fatal(err)
		}
		got := kinds(p.Seen(""))
		slices.Sort(got)
		if want := []string{"DELETE " + s.ContainerID, "GET json", "GET logs", "POST kill", "POST wait"}; !slices.Equal(got, want) {
			t.Errorf("%s: end: %v, want %v", mode, got, want)
		}
	}
}

// TestAddressInACustomNetwork: the kernel's answer is the engine's there, too.
func TestAddressInACustomNetwork(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	name := strings.ReplaceAll(f.owner.Name(), ".", "-")
	if _, err := f.docker.NetworkCreate(f.ctx(), name, network.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	task := f.task("sleep 60", func(e *executor.Task) { e.Spec.Network = api.TaskNetwork{Mode: "CUSTOM", Type: "cnm", Name: name} })
	t.Cleanup(func() {
		if err := f.Remove(f.ctx(), task.ID); err != nil {
			t.Error(err)
		}
		if err := f.docker.NetworkRemove(f.ctx(), name); err != nil {
			t.Error(err)
		}
	})
	s := f.launch(task)
	if n := len(p.Seen("")); n != 4 {
		t.Errorf("%d calls", n)
	}
	c, err := f.docker.ContainerInspect(f.ctx(), s.ContainerID)
	if err != nil {
		t.Fatal(err)
	}
	if e := c.NetworkSettings.Networks[name]; e == nil || e.IPAddress == "" || !slices.Equal(s.IPs, []string{e.IPAddress}) {
		t.Errorf("addresses %v, the engine says %+v", s.IPs, e)
	}
}

// TestStartedAndEndedAtOnce: there is nothing left for the kernel to tell; the
// engine is asked, and the end is what it was.
func TestStartedAndEndedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 5 {
		task := f.task("", func(e *executor.Task) { e.Spec.Container.Command = []string{"/bin/busybox", "false"} })
		s := f.launch(task)
		if s.ContainerID == "" || s.At.IsZero() {
			t.Errorf("%+v", s)
		}
		if exit, _ := f.finish(task); !exit.Known || exit.Code != 1 {
			t.Errorf("exit %+v", exit)
		}
	}
}
