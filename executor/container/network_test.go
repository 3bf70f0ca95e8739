package container

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	dnetwork "github.com/docker/docker/api/types/network"

	"tandem/api"
	"tandem/executor"
)

// TestCustomNetworkWithAnAddress: the address that is asked for is the
// container's, a second one cannot have it, and both refusals say what to do.
func TestCustomNetworkWithAnAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	name := fmt.Sprintf("tandem-test-%d", rand.Int64())
	third := rand.IntN(250)
	subnet, address := fmt.Sprintf("10.213.%d.0/24", third), fmt.Sprintf("10.213.%d.77", third)
	n, err := docker.NetworkCreate(f.ctx(), name, dnetwork.CreateOptions{IPAM: &dnetwork.IPAM{Config: []dnetwork.IPAMConfig{{Subnet: subnet}}}})
	if err != nil {
		t.Skip("the engine makes no network here: ", err)
	}
	in := func(network, ip string) func(*executor.Task) {
		return func(e *executor.Task) {
			e.Spec.Network = api.TaskNetwork{Mode: "CUSTOM", Type: "cnm", Name: network}
			if ip != "" {
				e.Spec.Container.Parameters = []api.TaskParameter{{Key: "ip", Value: ip}}
			}
		}
	}
	task := f.task("ip -4 addr show eth0; sleep 60", in(name, address))
	s := f.launch(task)
	if len(s.IPs) != 1 || s.IPs[0] != address {
		t.Errorf("addresses %v", s.IPs)
	}
	eventually(t, "the address on the interface", func() bool { return strings.Contains(f.read(task, "stdout"), address) })
	for _, c := range []struct{ network, ip, want string }{
		{name, address, "does not give the address " + address},
		{name, "192.0.2.1", "does not give the address 192.0.2.1"},
		{name + "-none", "", "docker network create"},
	} {
		bad := f.task("true", in(c.network, c.ip))
		err := f.Create(f.ctx(), bad)
		if err == nil {
			_, err = f.Start(f.ctx(), bad.ID)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		if err := f.Remove(f.ctx(), bad.ID); err != nil {
			t.Error(err)
		}
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Error(err)
	}
	if err := docker.NetworkRemove(f.ctx(), n.ID); err != nil {
		t.Error(err)
	}
}

// TestNoNetwork: NONE has a loopback interface and nothing else.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("ls /sys/class/net")
	s := f.launch(task)
	if _, out := f.finish(task); out != "lo\n" || len(s.IPs) > 0 {
		t.Errorf("interfaces %q, addresses %v", out, s.IPs)
	}
}
