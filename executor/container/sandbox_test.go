package container

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/pause"
	"tandem/executor/container/policy"
)

var sandboxImported sync.Once

// sandboxImage imports the image once: fixtures have a journal each, so they do
// not exclude one another as the executors of an agent do. TestMain removes it.
func (f *fixture) sandboxImage() {
	sandboxImported.Do(func() {
		name, layer, err := pause.Image()
		if err == nil {
			err = f.importSandbox(f.ctx(), name, layer)
		}
		if err != nil {
			f.t.Error(err)
		}
	})
}

// TestSandboxHoldsTheNetwork: it has an address before anything runs, containers
// join it and outlive one another, and it is gone after Remove.
func TestSandboxHoldsTheNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	box := f.task("", func(e *executor.Task) {
		e.Spec.Network.Mode = "BRIDGE"
		e.Spec.Container.Hostname = "pod"
	})
	f.sandboxImage()
	s, err := f.CreateSandbox(f.ctx(), box)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.IPs) != 1 {
		t.Errorf("addresses %v", s.IPs)
	}
	mine, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if ns, err := os.Readlink(s.Netns); err != nil || ns == mine {
		t.Errorf("namespace %q, %v", ns, err)
	}
	join := func(script string) *executor.Task {
		return f.task(script, func(e *executor.Task) { e.Spec.Network.Mode = "BRIDGE"; e.JoinTask = box.ID })
	}
	first := join("ip -4 addr show eth0; hostname")
	if got := f.launch(first); len(got.IPs) != 1 || got.IPs[0] != s.IPs[0] {
		t.Errorf("addresses of a container that joined: %v", got.IPs)
	}
	if _, out := f.finish(first); !strings.Contains(out, s.IPs[0]) || !strings.Contains(out, "pod\n") {
		t.Errorf("output %q", out)
	}
	if err := f.Remove(f.ctx(), first.ID); err != nil {
		t.Fatal(err)
	}
	second := join("ip -4 addr show eth0")
	f.launch(second)
	if _, out := f.finish(second); !strings.Contains(out, s.IPs[0]) {
		t.Errorf("after the first has gone: %q", out)
	}
	if err := f.Stop(f.ctx(), box.ID, time.Second); err != nil {
		t.Error(err)
	}
	for _, id := range []string{second.ID, box.ID} {
		if err := f.Remove(f.ctx(), id); err != nil {
			t.Error(err)
		}
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if recs, err := f.owner.Records(); err != nil || len(recs) > 0 {
		t.Errorf("records %v, %v", recs, err)
	}
}

// TestSandboxIsNotAnImageFromElsewhere: a policy that allows no registry is about
// what users name.
func TestSandboxIsNotAnImageFromElsewhere(t *testing.T) {
	t.Parallel()
	p, err := policy.Parse([]byte("privileged: false\nhostPaths: []\nregistries: []\ncapabilities: []\nhostNetwork: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *Options) { o.Policy = p })
	f.sandboxImage()
	box := f.task("", func(e *executor.Task) { e.Spec.Network.Mode = "BRIDGE" })
	if _, err := f.CreateSandbox(f.ctx(), box); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.AwaitSandbox(f.ctx(), box.ID) }()
	c, err := docker.ContainerInspect(f.ctx(), containerName(box.ID))
	if err != nil {
		t.Fatal(err)
	}
	if err := docker.ContainerKill(f.ctx(), c.ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody noticed the end of the sandbox")
	}
	if err := f.Remove(f.ctx(), box.ID); err != nil {
		t.Error(err)
	}
}

// TestSandboxWithoutNetworkIsForPlugins: NONE is what a CNI plugin finds: a
// namespace of its own with a loopback interface.
func TestSandboxWithoutNetworkIsForPlugins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.sandboxImage()
	box := f.task("", func(e *executor.Task) { e.Spec.Network = api.TaskNetwork{Mode: "NONE"} })
	s, err := f.CreateSandbox(f.ctx(), box)
	if err != nil {
		t.Fatal(err)
	}
	c, err := docker.ContainerInspect(f.ctx(), s.ContainerID)
	if err != nil || len(s.IPs) != 0 || !c.HostConfig.ReadonlyRootfs || c.HostConfig.CapDrop[0] != "ALL" || c.Config.User != "65534:65534" {
		t.Errorf("%v %+v", err, s)
	}
	if _, err := f.CreateSandbox(f.ctx(), box); err == nil {
		t.Error("made twice")
	}
	// Its executor dies: the record is enough.
	recs, err := f.owner.Records()
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	recs[0].Created = time.Time{}
	if err := NewCleaner("")(f.ctx(), recs[0]); err != nil {
		t.Error(err)
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
