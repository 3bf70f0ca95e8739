package placement

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tandem/network"
)

func agent(id string, cpus, mem float64, attrs ...Attribute) *Agent {
	free := Resources{ToMilli(cpus), ToMilli(mem), ToMilli(1000)}
	ports := network.Ranges{{Begin: 31000, End: 31004}}
	return &Agent{ID: id, Hostname: "host-" + id, Attributes: attrs, Free: free, Total: free, Ports: ports, Advertised: ports}
}

func request(id string, cpus, mem float64) *Request {
	return &Request{ID: id, App: "test/web", Need: Resources{ToMilli(cpus), ToMilli(mem), ToMilli(10)}}
}

func TestPlaceChooses(t *testing.T) {
	t.Parallel()
	other := func(agent string) Live {
		return Live{ID: "x-" + agent, App: "test/other", AgentID: agent, Hostname: "host-" + agent}
	}
	same := func(agent string) Live {
		return Live{ID: "s-" + agent, App: "test/web", AgentID: agent, Hostname: "host-" + agent}
	}
	half := agent("c", 4, 100)
	half.Free.CPUs /= 2
	cases := []struct {
		name   string
		agents []*Agent
		live   []Live
		want   string
	}{
		{"first by name when all is equal", []*Agent{agent("b", 4, 100), agent("a", 4, 100)}, nil, "a"},
		{"fewest of the same application", []*Agent{agent("a", 4, 100), agent("b", 4, 100)}, []Live{same("a"), other("b"), other("b")}, "b"},
		{"the emptier one", []*Agent{half, agent("d", 4, 100)}, nil, "d"},
		{"only where it fits", []*Agent{agent("a", 0.1, 100), agent("b", 4, 100)}, nil, "b"},
	}
	for _, c := range cases {
		s := NewSnapshot(c.agents, c.live, network.NewLedger())
		d := Place(s, request("r", 1, 50), network.First)
		if d.Agent == nil || d.Agent.ID != c.want {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestPlaceExplains(t *testing.T) {
	t.Parallel()
	fixed := func(port int) network.Group {
		return network.Group{Mode: network.Host, Tasks: []network.Task{{Name: "t", Process: true, Ports: []network.Declared{{Name: "p", HostPort: port}}}}}
	}
	random := network.Group{Tasks: []network.Task{{Name: "t", Process: true}}}
	for range 6 {
		random.Tasks[0].Ports = append(random.Tasks[0].Ports, network.Declared{Name: fmt.Sprintf("p%d", len(random.Tasks[0].Ports))})
	}
	cases := []struct {
		name       string
		change     func(r *Request, a *Agent, l *network.Ledger)
		code, text string
	}{
		{"cpus", func(r *Request, _ *Agent, _ *network.Ledger) { r.Need.CPUs = 4001 }, "cpus", "needs 4.001 of cpus, 4 are offered"},
		{"mem", func(r *Request, _ *Agent, _ *network.Ledger) { r.Need.MemMB = 101000 }, "mem", "needs 101 MB of mem, 100 MB are offered"},
		{"disk", func(r *Request, _ *Agent, _ *network.Ledger) { r.Need.DiskMB = 2000000 }, "disk", "disk"},
		{"exact", func(r *Request, a *Agent, _ *network.Ledger) { r.Need = a.Free }, "", ""},
		{"host", func(r *Request, _ *Agent, _ *network.Ledger) { r.OnlyHost = "elsewhere" }, "host", "elsewhere"},
		{"random ports", func(r *Request, _ *Agent, _ *network.Ledger) { r.Group = random }, "ports", "needs 6 random ports, the offer has 5"},
		{"port of another", func(r *Request, a *Agent, _ *network.Ledger) {
			r.Group = fixed(31002)
			a.Ports = a.Ports.Without(31002)
		}, "ports", "31002 is in use"},
		{"port in the ledger", func(r *Request, _ *Agent, l *network.Ledger) {
			r.Group = fixed(80)
			_ = l.Reserve("a", "0.db.test.local.1", []network.Claim{{Port: 80, Protocol: "tcp"}})
		}, "ports", "hostPort 80 is already used by test/db-0"},
		{"port in the ledger of another agent", func(r *Request, _ *Agent, l *network.Ledger) {
			r.Group = fixed(80)
			_ = l.Reserve("b", "0.db.test.local.1", []network.Claim{{Port: 80, Protocol: "tcp"}})
		}, "", ""},
		{"port in the ledger by another protocol", func(r *Request, _ *Agent, l *network.Ledger) {
			r.Group = fixed(80)
			_ = l.Reserve("a", "0.db.test.local.1", []network.Claim{{Port: 80, Protocol: "udp"}})
		}, "", ""},
	}
	for _, c := range cases {
		a, l, r := agent("a", 4, 100), network.NewLedger(), request("r", 1, 50)
		c.change(r, a, l)
		d := Place(NewSnapshot([]*Agent{a}, nil, l), r, network.First)
		switch {
		case c.code == "":
			if d.Agent == nil {
				t.Errorf("%s: refused: %+v", c.name, d.Refusals)
			}
		case d.Agent != nil || len(d.Refusals) != 1 || d.Refusals[0].Reason.Code != c.code || !strings.Contains(d.Refusals[0].Reason.Text, c.text):
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	a, b := Reason{"cpus", "few"}, Reason{"mem", "little"}
	got := Summarize([]Refusal{{"1", "h1", b}, {"2", "h2", a}, {"3", "h3", a}})
	if len(got) != 2 || got[0].Reason != a || strings.Join(got[0].Hosts, ",") != "h2,h3" || got[1].Hosts[0] != "h1" {
		t.Errorf("%+v", got)
	}
}

func TestTakeWithoutADecision(t *testing.T) {
	t.Parallel()
	if err := NewSnapshot(nil, nil, network.NewLedger()).Take(request("r", 1, 1), &Decision{}); err == nil {
		t.Error("nothing was taken, and it is no error")
	}
}

// TestTakeNeverGivesTwice places at random until nothing fits: no port and no
// resource is given out twice, and the same input gives the same decision.
func TestTakeNeverGivesTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var agents []*Agent
		for i := range rapid.IntRange(1, 3).Draw(t, "agents") {
			agents = append(agents, agent(strconv.Itoa(i), rapid.Float64Range(0, 4).Draw(t, "cpus"), 100))
		}
		s := NewSnapshot(agents, nil, network.NewLedger())
		taken := map[string]string{}
		for n := range 20 {
			r := request(fmt.Sprintf("%d.web.test.local.1", n), rapid.Float64Range(0.01, 1).Draw(t, "need"), 1)
			for range rapid.IntRange(0, 3).Draw(t, "ports") {
				port := rapid.SampledFrom([]int{0, 31001, 31002, 80, 81}).Draw(t, "port")
				if len(r.Group.Tasks) == 0 {
					r.Group.Tasks = []network.Task{{Name: "t", Process: true}}
				}
				ports := &r.Group.Tasks[0].Ports
				*ports = append(*ports, network.Declared{Name: fmt.Sprintf("p%d", len(*ports)), HostPort: port})
			}
			d := Place(s, r, network.First)
			if again := Place(s, r, network.First); fmt.Sprint(d) != fmt.Sprint(again) {
				t.Fatalf("two decisions for one input: %+v and %+v", d, again)
			}
			if d.Agent == nil {
				continue
			}
			if err := s.Take(r, &d); err != nil {
				t.Fatal(err)
			}
			if d.Agent.Free.CPUs < 0 || d.Agent.Free.MemMB < 0 {
				t.Fatalf("more is taken than there is: %+v", d.Agent.Free)
			}
			for _, ports := range d.Ports.Tasks {
				for _, p := range ports {
					at := fmt.Sprintf("%s:%d/%s", d.Agent.ID, p.HostPort, p.Protocol)
					if taken[at] != "" {
						t.Fatalf("%s is given to %s and %s", at, taken[at], r.ID)
					}
					taken[at] = r.ID
				}
			}
		}
	})
}
