package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	"pgregory.net/rapid"

	"tandem/api"
)

// TestModel lets anything happen in any order: to the cluster, to the
// connection, to the scheduler, and what people ask for. All the time it holds
// that an ACCEPT follows its record and an acknowledgement its status (sim
// checks these), that an instance has one taskgroup and a fixed port one owner.
// When the world behaves again, what runs is what was declared.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{harness: newHarness(t, 3), want: map[string]int{}}
		m.m.subscribe("")
		t.Repeat(map[string]func(*rapid.T){
			"":          func(*rapid.T) { m.check() },
			"deliver":   func(t *rapid.T) { m.some(t, func() { m.deliver() }) },
			"deliver2":  func(t *rapid.T) { m.some(t, func() { m.deliver() }) },
			"duplicate": m.duplicate,
			"offer":     func(*rapid.T) { m.m.allocate() },
			"offer2":    func(*rapid.T) { m.m.allocate(); m.deliver() },
			"rescind":   m.rescind,
			"time": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "s")) * time.Second)
				m.round()
			},
			"progress":   m.progress,
			"progress2":  m.progress,
			"end":        m.end,
			"lose":       func(t *rapid.T) { m.m.lose(m.agent(t)) },
			"back":       func(t *rapid.T) { m.m.back(m.agent(t)) },
			"disconnect": func(*rapid.T) { m.m.disconnect() },
			"cut":        func(*rapid.T) { m.m.connected, m.m.events = false, nil }, // before the session has noticed
			"connect":    func(*rapid.T) { m.connect() },
			"connect2":   func(*rapid.T) { m.connect() },
			"restart":    func(*rapid.T) { m.m.connected, m.m.events = false, nil; m.restart() },
			"teardown":   func(t *rapid.T) { m.teardown(t) },
			"refuse":     func(t *rapid.T) { m.m.refuse = rapid.Bool().Draw(t, "refuse") },
			"declare":    m.declare,
			"declare2":   m.declare,
			"delete":     m.delete,
			"again":      m.again,
		})
		m.behave()
	})
}

type model struct {
	*harness
	// want are the instances by name of what is declared.
	want map[string]int
}

func (m *model) ref(name string) api.Ref {
	return api.Ref{Kind: api.KindProcess, Namespace: "test", Name: name}
}

func (m *model) some(t *rapid.T, f func()) {
	for range rapid.IntRange(1, 6).Draw(t, "n") {
		f()
	}
}

// pick draws one of several, or nothing.
func pick[T any](t *rapid.T, list []T, label string) (T, bool) {
	if len(list) == 0 {
		var none T
		return none, false
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(t, label)], true
}

func (m *model) agent(t *rapid.T) string {
	id, _ := pick(t, slices.Sorted(maps.Keys(m.m.agents)), "agent")
	return id
}

func (m *model) task(t *rapid.T) *simTask {
	var list []*simTask
	for _, id := range m.m.order {
		if x := m.m.tasks[id]; x != nil && !terminal(x.state) {
			list = append(list, x)
		}
	}
	x, _ := pick(t, list, "task")
	return x
}

func (m *model) duplicate(t *rapid.T) {
	for _, id := range m.m.order {
		if x := m.m.tasks[id]; x != nil && len(x.queue) > 0 && rapid.Bool().Draw(t, "again") {
			m.m.forward(x)
		}
	}
}

func (m *model) rescind(t *rapid.T) {
	if id, ok := pick(t, slices.Sorted(maps.Keys(m.m.offers)), "offer"); ok {
		m.m.rescind(id)
	}
}

func (m *model) progress(t *rapid.T) {
	if x := m.task(t); x != nil {
		switch x.state {
		case mesoslib.TASK_STAGING:
			m.m.update(x, mesoslib.TASK_STARTING)
		case mesoslib.TASK_STARTING:
			m.m.update(x, mesoslib.TASK_RUNNING)
		default:
		}
	}
}

func (m *model) end(t *rapid.T) {
	if x := m.task(t); x != nil {
		x.group.deaf = rapid.Bool().Draw(t, "deaf")
		m.m.end(x, rapid.SampledFrom([]mesoslib.TaskState{mesoslib.TASK_FAILED, mesoslib.TASK_FINISHED, mesoslib.TASK_KILLED}).Draw(t, "state"))
	}
}

func (m *model) connect() {
	if !m.m.connected {
		m.m.subscribe(m.l.FrameworkID())
	}
}

func (m *model) teardown(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
		m.m.teardown()
	}
}

func (m *model) declare(t *rapid.T) {
	name := rapid.SampledFrom([]string{"one", "two", "fixed"}).Draw(t, "name")
	if o := m.l.objects[m.ref(name)]; o != nil && o.Deleting {
		return
	}
	n := rapid.IntRange(0, 3).Draw(t, "instances")
	ports := ""
	switch name {
	case "fixed":
		n = min(n, 2)
		ports = rapid.SampledFrom([]string{`"ports":[{"name":"p","hostPort":31003}],`, `"ports":[{"name":"p","hostPort":9000}],`}).Draw(t, "ports")
	case "two":
		ports = `"ports":[{"name":"p","hostPort":0},{"name":"q","hostPort":9100}],`
		n = min(n, 2)
	}
	version := rapid.IntRange(0, 2).Draw(t, "version")
	tasks := fmt.Sprintf(`{"procName":"a","startCmd":"a %d",%s"resources":{"limits":{"cpu":0.1,"memory":10}}}`, version, ports)
	if name == "one" {
		tasks += `,{"procName":"b","startCmd":"b"}`
	}
	m.apply(fmt.Sprintf(`{"kind":"process","metadata":{"name":"%s","namespace":"test"},"restartPolicy":{"policy":"Always","interval":1,"backoff":1},
		"killPolicy":{"gracePeriod":1},"spec":{"instance":%d,"template":{"spec":{"processes":[%s]}}}}`, name, n, tasks))
	m.want[name] = n
}

func (m *model) delete(t *rapid.T) {
	name, ok := pick(t, slices.Sorted(maps.Keys(m.want)), "name")
	if !ok {
		return
	}
	if err := m.do(func() error { return m.l.remove(m.ref(name)) }); err != nil {
		m.Fatalf("delete %s: %v", name, err)
	}
	delete(m.want, name)
}

func (m *model) again(t *rapid.T) {
	if name, ok := pick(t, slices.Sorted(maps.Keys(m.want)), "name"); ok {
		if err := m.do(func() error { return m.l.restart(m.ref(name)) }); err != nil {
			m.Fatalf("restart %s: %v", name, err)
		}
	}
}

// check looks at what really runs. What was out of reach once may run beside
// its successor until it can be killed.
func (m *model) check() {
	instances, ports := map[string]string{}, map[string]string{}
	for _, g := range m.m.liveGroups("") {
		if g.strayed {
			continue
		}
		parts := strings.SplitN(g.id, ".", 3)
		instance := parts[1] + "-" + parts[0]
		if other := instances[instance]; other != "" {
			m.Fatalf("%s has two taskgroups: %s and %s", instance, other, g.id)
		}
		instances[instance] = g.id
		rec := m.group(g.id)
		if rec == nil {
			continue
		}
		for i := range rec.Tasks {
			for _, p := range rec.Tasks[i].Ports {
				at := fmt.Sprintf("%s:%d", g.agent, p.HostPort)
				if other := ports[at]; other != "" {
					m.Fatalf("port %s is given to %s and to %s", at, other, g.id)
				}
				ports[at] = g.id
			}
		}
	}
}

func (m *model) group(id string) *groupRecord {
	for _, slots := range m.l.slots {
		for _, sl := range slots {
			if sl.Group != nil && sl.Group.ID == id {
				return sl.Group
			}
		}
	}
	return nil
}

// behave lets the world behave until what is declared must run.
func (m *model) behave() {
	m.m.refuse = false
	m.connect()
	for id := range m.m.agents {
		m.m.back(id)
	}
	for _, g := range m.m.groups {
		g.deaf = false
	}
	var left string
	for range 400 {
		m.advance(2 * time.Second)
		m.m.run()
		m.settle()
		m.check()
		if left = m.unsettled(); left == "" {
			return
		}
	}
	m.Fatalf("after a quarter of an hour: %s", left)
}

// unsettled says what is not as it is declared.
func (m *model) unsettled() string {
	total := 0
	for name, n := range m.want {
		o := m.l.objects[m.ref(name)]
		if st := m.l.status(o); !st.Settled {
			return fmt.Sprintf("%s: %+v", name, st)
		}
		for i := range n {
			if len(m.m.liveGroups(fmt.Sprintf("%d.%s.", i, name))) != 1 {
				return fmt.Sprintf("%s-%d does not run once", name, i)
			}
		}
		total += n
	}
	if all := m.m.liveGroups(""); len(all) != total {
		return fmt.Sprintf("%d taskgroups run, %d are declared", len(all), total)
	}
	if n := len(m.store.slots()); n != total {
		return fmt.Sprintf("%d instances are stored, %d are declared", n, total)
	}
	if len(m.l.objects) != len(m.want) {
		return fmt.Sprintf("%d objects, %d are declared", len(m.l.objects), len(m.want))
	}
	if len(m.m.offers) > 0 || len(m.l.unanswered) > 0 {
		return fmt.Sprintf("%d offers are held, %d tasks unanswered", len(m.m.offers), len(m.l.unanswered))
	}
	return ""
}
