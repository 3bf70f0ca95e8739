package scheduler

import (
	"strings"
	"testing"

	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
)

// TestTaskgroupWithAnOrderAndOneNetwork: what the executor is told, and the KILLs
// of the main tasks before those of their sidecars.
func TestTaskgroupWithAnOrderAndOneNetwork(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(`{"kind":"application","metadata":{"name":"web","namespace":"test"},"killPolicy":{"gracePeriod":7,"drainDelay":5,"stopSignal":"SIGQUIT"},
		"spec":{"template":{"spec":{"networkMode":"BRIDGE","shareNetwork":true,
		"containers":[{"name":"side","lifecycle":"Sidecar","image":"i","resources":{"limits":{"cpu":0.1,"memory":10}}},{"name":"box","image":"i","resources":{"limits":{"cpu":0.1,"memory":10}}},{"name":"first","lifecycle":"init","image":"i","resources":{"limits":{"cpu":0.1,"memory":10}}}],
		"processes":[{"name":"proc","procName":"p","startCmd":"p","ports":[{"name":"b","containerPort":90,"hostPort":0}],"resources":{"limits":{"cpu":0.1,"memory":10}}}]}}}}`)
	h.settle()
	sl := h.l.slots[api.Ref{Kind: api.KindApplication, Namespace: "test", Name: "web"}][0]
	specs := h.launched()
	if len(specs) != 4 {
		t.Fatalf("%d tasks; waits for %v", len(specs), sl.waiting)
	}
	var order []string
	for _, s := range specs {
		order = append(order, s.Name+":"+s.Lifecycle)
		if s.Network.Mode != "BRIDGE" || s.KillPolicy != (api.TaskKillPolicy{GracePeriodSeconds: 7, DrainSeconds: 5, StopSignal: "SIGQUIT"}) {
			t.Errorf("%s: network %+v, kill policy %+v", s.Name, s.Network, s.KillPolicy)
		}
	}
	if got := strings.Join(order, " "); got != "side:sidecar box: first:init proc:" {
		t.Errorf("tasks %s", got)
	}
	if p := specs[3].Ports[0]; p.ContainerPort != 90 || p.HostPort < 31000 {
		t.Errorf("port %+v of the process follows the rules of containers", p)
	}
	g := sl.Group
	order = nil
	for _, r := range g.inStopOrder() {
		order = append(order, r.Name)
	}
	if got := strings.Join(order, " "); got != "box proc side first" {
		t.Errorf("killed in the order %s", got)
	}
	info := h.l.executor(g)
	if got := info.ShutdownGracePeriod.Nanoseconds; got != 17e9 {
		t.Errorf("the executor has %d ns to shut down, want drain delay, grace and 5 s", got)
	}
	h.m.took()
	h.apply(`{"kind":"application","metadata":{"name":"web","namespace":"test"},"spec":{"instance":0,"template":{"spec":{"containers":[{"image":"i"}]}}}}`)
	h.settle()
	var killed []string
	for _, c := range h.m.took(mesosapi.Call_KILL) {
		for _, task := range g.Tasks {
			if task.ID == c.Kill.TaskID.Value {
				killed = append(killed, task.Name)
			}
		}
	}
	if got := strings.Join(killed, " "); !strings.HasPrefix(got, "box proc side") {
		t.Errorf("killed %s", got)
	}
}
