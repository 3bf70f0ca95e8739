package network

import (
	"errors"
	"fmt"
	"testing"

	"tandem/api"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var (
	offered    = Ranges{{31000, 31002}, {31010, 31019}}
	advertised = Ranges{{31000, 31999}}
)

// TestPortTable has one case for each row of the port table, and for each cell
// of a row that behaves differently.
func TestPortTable(t *testing.T) {
	t.Parallel()
	const absent = Unpublished
	for _, c := range []struct {
		name                string
		mode                Mode
		process, publishAll bool
		container, host     int
		wantContainer       int
		wantHost            int
		charged, ledger     int
		err                 string
	}{
		{"host, none given", Host, false, false, 0, absent, 31000, 31000, 1, 0, ""},
		{"host absent 0", Host, false, false, 0, 0, 31000, 31000, 1, 0, ""},
		{"host absent fixed outside", Host, false, false, 0, 8300, 8300, 8300, 0, 1, ""},
		{"host absent fixed inside", Host, false, false, 0, 31001, 31001, 31001, 1, 0, ""},
		{"host given absent", Host, false, false, 80, absent, 80, 80, 0, 1, ""},
		{"host given 0", Host, false, false, 80, 0, 80, 80, 0, 1, ""},
		{"host given same", Host, false, false, 80, 80, 80, 80, 0, 1, ""},
		{"host given other", Host, false, false, 80, 81, 0, 0, 0, 0, "make hostPort 80 too"},
		{"host -P", Host, false, true, 80, absent, 80, 80, 0, 1, ""},
		{"bridge absent", Bridge, false, false, 80, absent, 80, 0, 0, 0, ""},
		{"bridge -7", Bridge, false, false, 80, -7, 80, 0, 0, 0, ""},
		{"bridge 0", Bridge, false, false, 80, 0, 80, 31000, 1, 0, ""},
		{"bridge fixed outside", Bridge, false, false, 80, 8080, 80, 8080, 0, 1, ""},
		{"bridge fixed inside", Bridge, false, false, 80, 31010, 80, 31010, 1, 0, ""},
		{"bridge without containerPort", Bridge, false, false, 0, 0, 0, 0, 0, 0, "add containerPort"},
		{"bridge -P absent", Bridge, false, true, 80, absent, 80, 31000, 1, 0, ""},
		{"bridge -P fixed", Bridge, false, true, 80, 8080, 80, 31000, 1, 0, ""},
		{"cnm absent", CustomCNM, false, false, 80, absent, 80, 0, 0, 0, ""},
		{"cnm 0", CustomCNM, false, false, 80, 0, 80, 31000, 1, 0, ""},
		{"cnm fixed", CustomCNM, false, false, 80, 8080, 80, 8080, 0, 1, ""},
		{"cni absent", CustomCNI, false, false, 80, absent, 80, 0, 0, 0, ""},
		{"cni 0", CustomCNI, false, false, 80, 0, 80, 31000, 1, 0, ""},
		{"cni fixed", CustomCNI, false, false, 80, 8080, 80, 8080, 0, 1, ""},
		{"none absent", None, false, false, 80, absent, 80, 0, 0, 0, ""},
		{"none 0", None, false, false, 80, 0, 0, 0, 0, 0, "no network to publish"},
		{"none fixed", None, false, false, 80, 80, 0, 0, 0, 0, "no network to publish"},
		{"none -P", None, false, true, 80, absent, 0, 0, 0, 0, "no network to publish"},
		{"process absent", None, true, false, 0, absent, 31000, 31000, 1, 0, ""},
		{"process 0", None, true, false, 4711, 0, 31000, 31000, 1, 0, ""},
		{"process fixed", Bridge, true, false, 4711, 6379, 6379, 6379, 0, 1, ""},
		{"fixed, advertised, not offered", Bridge, false, false, 80, 31005, 0, 0, 0, 0, "is in use on this agent"},
		{"beyond the last port", Bridge, false, false, 80, 65536, 0, 0, 0, 0, "ports end at 65535"},
		{"negative containerPort", Host, false, false, -1, 0, 0, 0, 0, 0, "use 1 to 65535"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := Group{Mode: c.mode, Tasks: []Task{{Name: "web", Process: c.process, PublishAll: c.publishAll,
				Ports: []Declared{{Name: "http", ContainerPort: c.container, HostPort: c.host, Protocol: "http", Path: "p[0]"}}}}}
			d, err := Draw(g, offered, advertised, First)
			if !matches(err, c.err) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if err != nil {
				return
			}
			want := api.TaskPort{Name: "http", ContainerPort: c.wantContainer, HostPort: c.wantHost, Protocol: "tcp"}
			if diff := cmp.Diff([][]api.TaskPort{{want}}, d.Tasks); diff != "" {
				t.Error(diff)
			}
			if d.Charged.Len() != c.charged || len(d.Ledger) != c.ledger {
				t.Errorf("charged %v, ledger %v; want %d and %d", d.Charged, d.Ledger, c.charged, c.ledger)
			}
		})
	}
}

// TestE10DuplicatePortsAreRefused: two mappings of one port must not overwrite each other.
func TestE10DuplicatePortsAreRefused(t *testing.T) {
	t.Parallel()
	port := func(path string, container, host int, protocol string) Declared {
		return Declared{Path: path, ContainerPort: container, HostPort: host, Protocol: protocol}
	}
	for _, c := range []struct {
		name  string
		group Group
		want  []string
	}{
		{"same container port in one namespace", Group{Bridge, []Task{
			{Name: "a", Ports: []Declared{port("a[0]", 80, 0, "tcp")}},
			{Name: "b", Ports: []Declared{port("b[0]", 80, 0, "http")}},
		}}, []string{"b[0].containerPort"}},
		{"same host port", Group{Bridge, []Task{
			{Name: "a", Ports: []Declared{port("a[0]", 80, 8080, "tcp")}},
			{Name: "b", Ports: []Declared{port("b[0]", 81, 8080, "tcp")}},
		}}, []string{"b[0].hostPort"}},
		{"container and process", Group{Host, []Task{
			{Name: "a", Ports: []Declared{port("a[0]", 80, Unpublished, "tcp")}},
			{Name: "b", Process: true, Ports: []Declared{port("b[0]", 0, 80, "tcp")}},
		}}, []string{"b[0].hostPort"}},
		{"other protocol", Group{Bridge, []Task{
			{Name: "a", Ports: []Declared{port("a[0]", 53, 53, "tcp"), port("a[1]", 53, 53, "udp")}},
		}}, nil},
		{"process port is no container port", Group{Bridge, []Task{
			{Name: "a", Ports: []Declared{port("a[0]", 80, Unpublished, "tcp")}},
			{Name: "b", Process: true, Ports: []Declared{port("b[0]", 0, 80, "tcp")}},
		}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, e := range ValidatePorts(c.group) {
				got = append(got, e.Path)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidateReportsEverythingWithPaths(t *testing.T) {
	t.Parallel()
	g := Group{Mode: Bridge, Tasks: []Task{{Name: "web", Ports: []Declared{
		{Path: "ports[0]", Name: "a b", ContainerPort: 80, HostPort: 70000, Protocol: "tcp"},
		{Path: "ports[1]", Name: "http", ContainerPort: 0, HostPort: 0},
		{Path: "ports[2]", Name: "HTTP", ContainerPort: 81, HostPort: Unpublished, Protocol: "sctp"},
	}}}}
	var got []string
	for _, e := range ValidatePorts(g) {
		got = append(got, e.Path)
	}
	want := []string{"ports[0].name", "ports[0].hostPort", "ports[1].containerPort", "ports[2].name", "ports[2].protocol"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDrawKeepsProtocolsOfOneNumberTogether(t *testing.T) {
	t.Parallel()
	g := Group{Mode: Bridge, Tasks: []Task{{Name: "dns", Ports: []Declared{
		{ContainerPort: 53, HostPort: 31000, Protocol: "tcp"}, {ContainerPort: 53, HostPort: 31000, Protocol: "udp"},
	}}}}
	d, err := Draw(g, offered, advertised, First)
	if err != nil || d.Charged.String() != "31000" {
		t.Fatalf("charged %v, %v; want 31000 once", d.Charged, err)
	}
}

func TestDrawTooFew(t *testing.T) {
	t.Parallel()
	g := Group{Mode: Bridge, Tasks: []Task{{Name: "a", Ports: []Declared{{ContainerPort: 1}, {ContainerPort: 2}}}}}
	_, err := Draw(g, Ports(31000), advertised, First)
	var few *TooFewError
	if !errors.As(err, &few) || few.Need != 2 || few.Have != 1 {
		t.Fatalf("got %v", err)
	}
}

// TestDrawProperties: whatever the taskgroup, no port is given twice, everything
// charged is offered, nothing in the ledger is advertised, and fixed ports keep their number.
func TestDrawProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := Group{Mode: Mode(rapid.IntRange(int(None), int(CustomCNI)).Draw(t, "mode"))}
		for i := range rapid.IntRange(1, 3).Draw(t, "tasks") {
			task := Task{Name: fmt.Sprintf("t%d", i), Process: rapid.Bool().Draw(t, "process"), PublishAll: rapid.Bool().Draw(t, "P")}
			for range rapid.IntRange(0, 4).Draw(t, "ports") {
				task.Ports = append(task.Ports, Declared{
					ContainerPort: rapid.SampledFrom([]int{0, 1, 2, 3, 8080, 31000}).Draw(t, "containerPort"),
					HostPort:      rapid.SampledFrom([]int{-1, -1, 0, 0, 8080, 8081, 31000, 31001, 31011}).Draw(t, "hostPort"),
					Protocol:      rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "protocol"),
				})
			}
			g.Tasks = append(g.Tasks, task)
		}
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		need := Needs(g)
		d, err := Draw(g, offered, advertised, choose)
		if err != nil {
			return
		}
		seen := map[portKey]bool{}
		numbers := map[int]bool{}
		published := 0
		for _, ports := range d.Tasks {
			for _, p := range ports {
				if p.HostPort == 0 {
					continue
				}
				published++
				numbers[p.HostPort] = true
				k := portKey{p.HostPort, p.Protocol}
				if seen[k] {
					t.Fatalf("%v given twice", k)
				}
				seen[k] = true
				if advertised.Contains(p.HostPort) != d.Charged.Contains(p.HostPort) {
					t.Fatalf("port %d: charged %v", p.HostPort, d.Charged)
				}
			}
		}
		if published != need.Random+len(need.Fixed) {
			t.Fatalf("%d published, needs %+v", published, need)
		}
		for _, r := range d.Charged {
			for p := r.Begin; p <= r.End; p++ {
				if !offered.Contains(p) || !numbers[p] {
					t.Fatalf("charged %d is not offered or not used", p)
				}
			}
		}
		for _, c := range d.Ledger {
			if advertised.Contains(c.Port) {
				t.Fatalf("ledger has advertised %d", c.Port)
			}
		}
	})
}

func TestRanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		model := map[int]bool{}
		var r Ranges
		for range rapid.IntRange(0, 6).Draw(t, "spans") {
			b := rapid.IntRange(0, 30).Draw(t, "begin")
			e := b + rapid.IntRange(-1, 8).Draw(t, "size")
			r = append(r, Range{b, e})
			for p := b; p <= e; p++ {
				model[p] = true
			}
		}
		n := r.Normalize()
		out := rapid.IntRange(0, 40).Draw(t, "out")
		n = n.Without(out)
		delete(model, out)
		if n.Len() != len(model) {
			t.Fatalf("%v has %d, want %d", n, n.Len(), len(model))
		}
		for i := range n.Len() {
			if p := n.Nth(i); !model[p] || !n.Contains(p) {
				t.Fatalf("%v: Nth(%d) = %d", n, i, p)
			}
		}
	})
}

func TestPortEnv(t *testing.T) {
	t.Parallel()
	if env := PortEnv(nil); env != nil {
		t.Errorf("no ports: %v", env)
	}
	got := PortEnv([]api.TaskPort{
		{Name: "svc-port", ContainerPort: 80, HostPort: 31000, Protocol: "tcp"},
		{ContainerPort: 81, Protocol: "tcp"},
		{Name: "ADMIN", ContainerPort: 82, Protocol: "tcp"},
	})
	want := []api.TaskEnvVar{
		{Name: "PORT0", Value: "31000"}, {Name: "PORT1", Value: "81"}, {Name: "PORT2", Value: "82"},
		{Name: "PORT", Value: "31000"}, {Name: "PORTS", Value: "31000,81,82"},
		{Name: "PORT_SVC_PORT", Value: "31000"}, {Name: "PORT_svc-port", Value: "31000"},
		{Name: "PORT_ADMIN", Value: "82"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPeerEnvNamesThePortsOfTheOthers(t *testing.T) {
	t.Parallel()
	got := PeerEnv([]api.TaskPort{{Name: "db-1", ContainerPort: 80, HostPort: 31000}, {ContainerPort: 9}, {Name: "DB_1", ContainerPort: 81}, {Name: "db-1", ContainerPort: 82}})
	want := []api.TaskEnvVar{{Name: "PORT_DB_1", Value: "31000"}, {Name: "PORT_db-1", Value: "31000"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestProcessesThatShareTheNetworkFollowTheRulesOfContainers: what is bound in a
// namespace of its own is no port of the agent.
func TestProcessesThatShareTheNetworkFollowTheRulesOfContainers(t *testing.T) {
	t.Parallel()
	pod := &api.PodSpec{NetworkMode: "BRIDGE", ShareNetwork: true, Processes: []api.Process{{Name: "p", Ports: []api.Port{{Name: "a", ContainerPort: 80, HostPort: 0}, {Name: "b", ContainerPort: 81, HostPort: Unpublished}}}}}
	g, net, err := GroupOf(pod, "")
	if err != nil || net.Mode != "BRIDGE" {
		t.Fatal(net, err)
	}
	d, err := Draw(g, offered, advertised, First)
	want := [][]api.TaskPort{{{Name: "a", ContainerPort: 80, HostPort: 31000, Protocol: "tcp"}, {Name: "b", ContainerPort: 81, Protocol: "tcp"}}}
	if diff := cmp.Diff(want, d.Tasks); diff != "" || err != nil {
		t.Error(err, diff)
	}
	pod.NetworkMode = "HOST"
	if g, _, err := GroupOf(pod, ""); err != nil || !g.Tasks[0].Process {
		t.Error("in the host's network it is a process like any other", err)
	}
}

func TestPublishAll(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"": true, "true": true, "false": false, "False": false} {
		if got := PublishAll([]api.TaskParameter{{Key: "rm", Value: "true"}, {Key: "P", Value: value}}); got != want {
			t.Errorf("P=%q: %v", value, got)
		}
	}
	if PublishAll(nil) {
		t.Error("P without parameters")
	}
}
