package scheduler

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
)

// launched returns the specifications of what was launched since the last time.
func (h *harness) launched() []api.TaskSpec {
	h.Helper()
	var out []api.TaskSpec
	for _, c := range h.m.took(mesosapi.Call_ACCEPT) {
		for _, op := range c.Accept.Operations {
			for _, task := range op.LaunchGroup.TaskGroup.Tasks {
				var s api.TaskSpec
				if err := json.Unmarshal(task.Data, &s); err != nil {
					h.Fatalf("%v", err)
				}
				out = append(out, s)
			}
		}
	}
	return out
}

func TestMixedTaskgroup(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(`{"kind":"application","metadata":{"name":"mixed","namespace":"test","labels":{"app":"mixed"}},"spec":{"template":{"spec":{"networkMode":"BRIDGE",
		"processes":[{"name":"proc","procName":"p","startCmd":"p","ports":[{"name":"b","hostPort":0}],"resources":{"limits":{"cpu":0.2,"memory":20}}}],
		"containers":[{"name":"box","image":"i","ports":[{"name":"a","containerPort":80,"hostPort":0}],"resources":{"limits":{"cpu":0.3,"memory":30}}}]}}}}`)
	h.settle()
	specs := h.launched()
	if len(specs) != 2 {
		t.Fatalf("%d tasks", len(specs))
	}
	box, proc := specs[0], specs[1]
	if box.Kind != api.TaskContainer || box.Network.Mode != "BRIDGE" || box.Position != 0 || box.Ports[0].ContainerPort != 80 || box.Ports[0].HostPort < 31000 {
		t.Errorf("container: %+v", box)
	}
	if proc.Kind != api.TaskProcess || proc.Network.Mode != "HOST" || proc.Position != 1 || proc.Ports[0].ContainerPort != proc.Ports[0].HostPort {
		t.Errorf("process: %+v", proc)
	}
	if box.Taskgroup != proc.Taskgroup || box.Taskgroup.Size != 2 || box.Ports[0].HostPort == proc.Ports[0].HostPort {
		t.Errorf("taskgroups %+v and %+v", box.Taskgroup, proc.Taskgroup)
	}
	g := h.m.liveGroups("")[0]
	if want := h.o.Executor.CPUs + 500; g.need.CPUs != want || g.need.MemMB != h.o.Executor.MemMB+50000 || g.ports.Len() != 2 {
		t.Errorf("it takes %+v and %v", g.need, g.ports)
	}
}

func TestConfigurationIsResolved(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(web(1, "", `"configmaps":[{"name":"conf","items":[{"type":"file","dataKey":"main","keyOrPath":"/etc/main.conf"}]}],
		"secrets":[{"secretName":"keys","items":[{"type":"env","dataKey":"token","keyOrPath":"TOKEN"}]}],`))
	h.advance(10 * time.Second)
	if w := strings.Join(h.slot(0).waiting, "; "); !strings.Contains(w, "configmap test/conf does not exist; apply it") || !strings.Contains(w, "secret test/keys") {
		t.Fatalf("says %q", w)
	}
	text := base64.StdEncoding.EncodeToString([]byte("hello $HOME ${x}"))
	h.apply(`{"kind":"configmap","metadata":{"name":"conf","namespace":"test"},"datas":{"main":{"type":"file","content":"` + text + `"}}}`)
	h.apply(`{"kind":"secret","metadata":{"name":"keys","namespace":"test"},"datas":{"token":{"content":"` + base64.StdEncoding.EncodeToString([]byte("${hidden}")) + `"}}}`)
	h.advance(10 * time.Second)
	specs := h.launched()
	if len(specs) != 1 {
		t.Fatalf("%d tasks; waits for %v", len(specs), h.slot(0).waiting)
	}
	s := specs[0]
	if len(s.Files) != 1 || string(s.Files[0].Content) != "hello $HOME ${x}" || s.Files[0].Secret {
		t.Errorf("%+v", s.Files)
	}
	last := s.Env[len(s.Env)-1]
	if last.Name != "TOKEN" || last.Value != "${hidden}" || !last.Literal {
		t.Errorf("%+v", s.Env)
	}
	// What is secret is stored with its object only.
	for key, r := range h.store.records {
		if strings.HasPrefix(key, prefixSlot) && (strings.Contains(string(r.Value), "hidden") || strings.Contains(string(r.Value), "JHtoaWRkZW59")) {
			t.Errorf("%s holds the secret", key)
		}
	}
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(web(1, "", ""))
	h.settle()
	g := h.slot(0).Group
	parts := strings.Split(g.ID, ".")
	task := strings.Split(g.Tasks[0].ID, ".")
	if len(parts) != 5 || strings.Join(parts[:4], ".") != "0.web.test.local" {
		t.Errorf("taskgroup %s", g.ID)
	}
	if len(task) != 6 || task[0] != parts[4] || strings.Join(task[1:], ".") != "0.0.web.test.local" {
		t.Errorf("task %s", g.Tasks[0].ID)
	}
}

// TestE14CredentialsOfEachImage: each container has its own, written out or from a
// secret, and what is from a secret is stored with that only.
func TestE14CredentialsOfEachImage(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(`{"kind":"secret","metadata":{"name":"registry","namespace":"test"},"datas":{"user":{"content":"` + base64.StdEncoding.EncodeToString([]byte("joe\n")) +
		`"},"password":{"content":"` + base64.StdEncoding.EncodeToString([]byte("hush-hush\n")) + `"}}}`)
	h.apply(`{"kind":"application","metadata":{"name":"web","namespace":"test"},"spec":{"instance":1,"template":{"spec":{"networkMode":"BRIDGE","containers":[
		{"name":"a","image":"one.example/a:1","imagePullUser":"secret::registry||user","imagePullPasswd":"secret::registry||password"},
		{"name":"b","image":"two.example/b:1","imagePullUser":"ann","imagePullPasswd":"plain"},
		{"name":"c","image":"c:1"}]}}}}`)
	h.advance(10 * time.Second)
	specs := h.launched()
	if len(specs) != 3 {
		t.Fatalf("%d tasks; waits for %v", len(specs), h.slot(0).waiting)
	}
	for i, want := range [][2]string{{"joe", "hush-hush"}, {"ann", "plain"}, {"", ""}} {
		if c := specs[i].Container; c.RegistryUser != want[0] || c.RegistryPass != want[1] {
			t.Errorf("%s has the credentials %q %q, want %q", c.Image, c.RegistryUser, c.RegistryPass, want)
		}
	}
	for key, r := range h.store.records {
		if strings.HasPrefix(key, prefixSlot) && strings.Contains(string(r.Value), "hush-hush") {
			t.Errorf("%s holds the secret", key)
		}
	}
}
