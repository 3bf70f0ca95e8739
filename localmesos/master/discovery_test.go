package master

import (
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// dnsState is what mesos-dns reads of /state (its records/state package).
type dnsState struct {
	Leader string `json:"leader"`
	Slaves []struct {
		ID       string `json:"id"`
		Hostname string `json:"hostname"`
		PID      string `json:"pid"`
	} `json:"slaves"`
	Frameworks []struct {
		Name  string    `json:"name"`
		Tasks []dnsTask `json:"tasks"`
	} `json:"frameworks"`
}

type dnsTask struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	SlaveID   string `json:"slave_id"`
	State     string `json:"state"`
	Resources struct {
		Ports string `json:"ports"`
	} `json:"resources"`
	Discovery *struct {
		Name  *string `json:"name"`
		Ports struct {
			Ports []struct {
				Number   int    `json:"number"`
				Protocol string `json:"protocol"`
				Name     string `json:"name"`
			} `json:"ports"`
		} `json:"ports"`
	} `json:"discovery"`
	Statuses []struct {
		State     string  `json:"state"`
		Timestamp float64 `json:"timestamp"`
		Labels    []struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		} `json:"labels"`
		ContainerStatus struct {
			NetworkInfos []struct {
				IPAddresses []struct {
					IPAddress string `json:"ip_address"`
				} `json:"ip_addresses"`
			} `json:"network_infos"`
		} `json:"container_status"`
	} `json:"statuses"`
}

// addresses are those of the latest status of TASK_RUNNING, as mesos-dns's source "netinfo" takes them.
func (t dnsTask) addresses() (out []string) {
	latest := -1
	for i, s := range t.Statuses {
		if s.State == "TASK_RUNNING" && (latest < 0 || s.Timestamp > t.Statuses[latest].Timestamp) {
			latest = i
		}
	}
	if latest < 0 {
		return nil
	}
	for _, n := range t.Statuses[latest].ContainerStatus.NetworkInfos {
		for _, ip := range n.IPAddresses {
			if net.ParseIP(ip.IPAddress) != nil {
				out = append(out, ip.IPAddress)
			}
		}
	}
	return out
}

// dnsRecords makes what mesos-dns would answer: addresses and services by name.
func dnsRecords(t *testing.T, m *Master, path string) map[string][]string {
	t.Helper()
	status, body := request(t, "GET", m.URL()+path, map[string]string{"Accept": "application/json"}, "")
	var s dnsState
	if err := json.Unmarshal([]byte(body), &s); status != 200 || err != nil {
		t.Fatalf("%s: %d %v", path, status, err)
	}
	_, leader, _ := strings.Cut(s.Leader, "@")
	host, _, err := net.SplitHostPort(leader)
	if err != nil {
		t.Fatalf("leader %q: %v", s.Leader, err)
	}
	out := map[string][]string{"leader.mesos": {host}}
	add := func(name, value string) {
		if !slices.Contains(out[name], value) {
			out[name] = append(out[name], value)
		}
	}
	slaves := map[string]string{}
	for _, x := range s.Slaves {
		_, address, ok := strings.Cut(x.PID, "@")
		ip, _, err := net.SplitHostPort(address)
		if !ok || err != nil || x.Hostname == "" {
			t.Errorf("slave %+v", x)
		}
		slaves[x.ID] = ip
		add("slave.mesos", ip)
	}
	for _, f := range s.Frameworks {
		for _, x := range f.Tasks {
			if x.State != "TASK_RUNNING" || slaves[x.SlaveID] == "" {
				continue
			}
			name := x.Name
			if x.Discovery != nil && x.Discovery.Name != nil {
				name = *x.Discovery.Name
			}
			name = strings.ToLower(name) + "." + strings.ToLower(f.Name) + ".mesos"
			add(strings.TrimSuffix(name, ".mesos")+".slave.mesos", slaves[x.SlaveID])
			ips := x.addresses()
			if len(ips) == 0 {
				ips = []string{slaves[x.SlaveID]}
			}
			for _, ip := range ips {
				add(name, ip)
			}
			if x.Discovery == nil {
				continue
			}
			for _, p := range x.Discovery.Ports.Ports {
				add("_"+p.Name+"._"+p.Protocol+"."+name, ips[0]+" "+x.Resources.Ports)
				if p.Number == 0 {
					t.Errorf("a port of %s has no number", x.ID)
				}
			}
		}
	}
	return out
}

// TestServiceDiscovery does what mesos-dns does: it finds the addresses of
// containers where Apache Mesos shows them, and forgets those of tasks that have ended.
func TestServiceDiscovery(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", `"capabilities":[{"type":"MULTI_ROLE"}],"roles":["*"],"failover_timeout":60`)
	const discovery = `,"discovery":{"visibility":"EXTERNAL","name":"Web","ports":{"ports":[{"number":31005,"name":"http","protocol":"tcp"}]}}`
	f.launch(t, f.offer(t), taskJSON("w1", a.id, executorJSON("x")+discovery), taskJSON("w2", a.id, executorJSON("x")+discovery),
		taskJSON("plain", a.id, executorJSON("x")), taskJSON("late", a.id, executorJSON("x")))
	const stateSeconds = 1_000_000
	report := func(task string, state mesos.TaskState, at float64, ips ...string) []byte {
		t.Helper()
		source, uuid, now := mesos.SOURCE_EXECUTOR, wire.UUIDBytes(), stateSeconds+at
		s := mesos.TaskStatus{TaskID: mesos.TaskID{Value: task}, State: &state, Source: &source, UUID: uuid, Timestamp: &now, AgentID: &mesos.AgentID{Value: a.id}, Data: []byte("secret")}
		if ips != nil {
			n := mesos.NetworkInfo{Labels: &mesos.Labels{Labels: []mesos.Label{{Key: "k", Value: new("v")}}}}
			for _, ip := range ips {
				v := mesos.IPv4
				if strings.Contains(ip, ":") {
					v = mesos.IPv6
				}
				n.IPAddresses = append(n.IPAddresses, mesos.NetworkInfo_IPAddress{IPAddress: new(ip), Protocol: &v})
			}
			s.ContainerStatus = &mesos.ContainerStatus{ContainerID: &mesos.ContainerID{Value: "c-" + task}, NetworkInfos: []mesos.NetworkInfo{n}}
		}
		if status := a.call(t, link.Call{Type: link.CallUpdate, Update: &link.StatusUpdate{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: "x", Status: s, LatestState: state}}); status != 202 {
			t.Fatal(status)
		}
		f.update(t, task)
		return uuid
	}
	report("w1", mesos.TASK_STARTING, 0, "10.1.0.1")
	report("w1", mesos.TASK_RUNNING, 1, "10.1.0.1")
	report("w1", mesos.TASK_RUNNING, 2, "10.1.0.7", "fd00::7") // moved: a later status of the same state
	report("w2", mesos.TASK_RUNNING, 1, "10.1.0.2")
	report("plain", mesos.TASK_RUNNING, 1)
	report("late", mesos.TASK_STARTING, 1, "10.1.0.9")
	want := map[string][]string{
		"leader.mesos": {"127.0.0.1"}, "slave.mesos": {"127.0.0.1"},
		"web.test.mesos": {"10.1.0.7", "fd00::7", "10.1.0.2"}, "web.test.slave.mesos": {"127.0.0.1"},
		"plain.test.mesos": {"127.0.0.1"}, "plain.test.slave.mesos": {"127.0.0.1"},
		"_http._tcp.web.test.mesos": {"10.1.0.7 ", "10.1.0.2 "},
	}
	same := func(a, b []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	for _, path := range []string{"/state", "/master/state"} {
		if got := dnsRecords(t, m, path); !maps.EqualFunc(got, want, same) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	var tasks struct {
		Tasks []dnsTask `json:"tasks"`
	}
	_, body := request(t, "GET", m.URL()+"/tasks", nil, "")
	if err := json.Unmarshal([]byte(body), &tasks); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tasks.Tasks, func(x dnsTask) bool { return x.ID == "w1" })
	if i < 0 || !slices.Equal(tasks.Tasks[i].addresses(), []string{"10.1.0.7", "fd00::7"}) {
		t.Errorf("/tasks: %s", body)
	}
	if strings.Contains(body, "secret") || strings.Contains(body, "c2VjcmV0") {
		t.Error("a status shows its data")
	}
	_, r, _ := operate(t, m, wire.Protobuf, &apimaster.Call{Type: apimaster.Call_GET_TASKS})
	for _, x := range r.GetTasks.Tasks {
		if x.TaskID.Value == "w2" && x.Statuses[0].ContainerStatus.NetworkInfos[0].IPAddresses[0].GetIPAddress() != "10.1.0.2" {
			t.Errorf("GET_TASKS: %v", x)
		}
	}
	uuid := report("w2", mesos.TASK_FINISHED, 3, "10.1.0.2")
	f.must(t, "ACKNOWLEDGE", ack(a.id, "w2", uuid))
	if got := dnsRecords(t, m, "/state")["web.test.mesos"]; !slices.Equal(got, []string{"10.1.0.7", "fd00::7"}) {
		t.Errorf("after one has ended: %v", got)
	}
}
