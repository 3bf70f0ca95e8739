package health

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/api"
)

// Every cell of both tables says something that makes sense.
func TestTableHasNoHole(t *testing.T) {
	t.Parallel()
	for kind := range Observation {
		for st := range stateCount {
			for ev := range eventCount {
				c := transitions[kind][st][ev]
				at := []any{kind, st, ev, c}
				switch {
				case st == dead && (c.next != dead || c.do != none):
					t.Errorf("%v: a dead task must stay dead", at)
				case kind == Readiness && st != dead && (c.next == dead || c.do == end):
					t.Errorf("%v: readiness must not end a task", at)
				case kind == Liveness && st != dead && (ev == limit) != (c.do == end && c.next == dead):
					t.Errorf("%v: the limit ends the task, and nothing else does", at)
				case st != dead && ev == success && c.next != healthy:
					t.Errorf("%v: a success is healthy", at)
				case ev == early && st == unknown && (c.do != none || c.next != unknown):
					t.Errorf("%v: an early failure tells nothing", at)
				case c.do == none && c.next != st, c.do == tell && c.next == st:
					t.Errorf("%v: exactly changes are told", at)
				}
			}
		}
	}
}

// script runs outcomes through one check and writes down what is told: h, u, D
// for healthy, unhealthy, dead; a dot for nothing.
func script(c Check, outcomes string) string {
	b := NewBoard()
	start := time.Now()
	b.Add("t", []Check{c}, start)
	var told strings.Builder
	for _, o := range outcomes {
		due, ok := b.Next()
		if !ok {
			told.WriteString("|") // no check is due any more
			continue
		}
		pr, ok := b.Take(due)
		if !ok {
			return "not due"
		}
		outcome := Outcome{Verdict: Passed}
		switch o {
		case '-':
			outcome = Outcome{Verdict: Failed, Message: "refused"}
		case '?':
			outcome = Outcome{Message: "who knows"}
		}
		change, ok := b.Done(pr, outcome, due)
		health := b.Health("t")
		switch {
		case !ok:
			told.WriteString(".")
		case change.Dead:
			told.WriteString("D")
		case *health:
			told.WriteString("h")
		default:
			told.WriteString("u")
		}
	}
	return told.String()
}

func TestWhatIsToldWhen(t *testing.T) {
	t.Parallel()
	// Due at 10, 20, 30, ... seconds after the start.
	every := Check{Delay: 10 * time.Second, Interval: 10 * time.Second, Timeout: time.Second}
	for name, c := range map[string]struct {
		kind           Kind
		grace          time.Duration
		limit          uint32
		outcomes, told string
	}{
		"changes only":                          {Liveness, 0, 0, "+++--+-+", "h..u.huh"},
		"never ends without a limit":            {Liveness, 0, 0, "----------", "u........."},
		"first failure is told at once":         {Liveness, 0, 3, "+-", "hu"},
		"recovers before the limit":             {Liveness, 0, 3, "+--+--+", "hu.hu.h"},
		"ends at the limit":                     {Liveness, 0, 3, "+---+-", "hu.D||"},
		"limit of one":                          {Liveness, 0, 1, "+-", "hD"},
		"slow start within grace":               {Liveness, 30 * time.Second, 1, "---++", "...h."},
		"too slow for its grace":                {Liveness, 20 * time.Second, 2, "----", "..uD"},
		"grace ends with the first success":     {Liveness, time.Hour, 2, "-+--", ".huD"},
		"what cannot be checked does not count": {Liveness, 0, 2, "-?-", "u.D"},
		"unclear keeps what is known":           {Liveness, 0, 1, "+???+", "h...."},
		"unclear is never healthy":              {Liveness, 0, 1, "???", "..."},
		"readiness never ends":                  {Readiness, 0, 2, "------", ".u...."},
		"readiness comes and goes":              {Readiness, 0, 2, "+-+--+", "h...uh"},
		"readiness without a limit takes one":   {Readiness, 0, 0, "+-+", "huh"},
		"readiness within grace":                {Readiness, 20 * time.Second, 1, "---+", "..uh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := every
			check.Kind, check.Grace, check.Limit = c.kind, c.grace, c.limit
			if got := script(check, c.outcomes); got != c.told {
				t.Errorf("%s told %s, want %s", c.outcomes, got, c.told)
			}
		})
	}
}

func TestE11DelayAndInterval(t *testing.T) {
	t.Parallel()
	b := NewBoard()
	start := time.Now()
	b.Add("t", []Check{{Delay: 3 * time.Second, Interval: 5 * time.Second}}, start)
	if _, ok := b.Take(start.Add(3*time.Second - 1)); ok {
		t.Error("due before its delay")
	}
	pr, ok := b.Take(start.Add(3 * time.Second))
	if !ok {
		t.Fatal("not due after its delay")
	}
	if _, ok := b.Next(); ok {
		t.Error("due while it is being made")
	}
	// It took two seconds; the interval begins with its end.
	b.Done(pr, Outcome{Verdict: Passed}, start.Add(5*time.Second))
	if due, ok := b.Next(); !ok || due.Sub(start) != 10*time.Second {
		t.Errorf("next after %v, %v; want 10s", due.Sub(start), ok)
	}
}

func TestEarliestIsFirst(t *testing.T) {
	t.Parallel()
	b := NewBoard()
	start := time.Now()
	for i, id := range []string{"c", "a", "b", "d"} {
		delay := []time.Duration{3e9, 1e9, 2e9, 4e9}[i]
		b.Add(id, []Check{{Delay: delay, Interval: time.Hour}}, start)
	}
	b.Remove("b")
	b.Remove("nobody")
	var order []string
	for {
		pr, ok := b.Take(start.Add(time.Minute))
		if !ok {
			break
		}
		order = append(order, pr.TaskID)
	}
	if !slices.Equal(order, []string{"a", "c", "d"}) {
		t.Errorf("order %v", order)
	}
}

func TestWhatComesTooLateChangesNothing(t *testing.T) {
	t.Parallel()
	b := NewBoard()
	start := time.Now()
	checks := []Check{{Interval: time.Second, Limit: 1}}
	b.Add("t", checks, start)
	old, _ := b.Take(start)
	b.Add("t", checks, start)
	if _, told := b.Done(old, Outcome{Verdict: Failed}, start); told || b.Health("t") != nil {
		t.Error("the outcome of an earlier task counts for its successor")
	}
	b.Remove("t")
	if _, told := b.Done(old, Outcome{Verdict: Failed}, start); told {
		t.Error("the outcome of a task that is gone is told")
	}
	if _, ok := b.Next(); ok {
		t.Error("something is due although no task is left")
	}
}

// A task is healthy when all say so, and unhealthy when one says so.
func TestChecksOfOneTask(t *testing.T) {
	t.Parallel()
	b := NewBoard()
	now := time.Now()
	b.Add("t", []Check{
		{Type: api.CheckTCP, Port: 80, Interval: time.Second},
		{Type: api.CheckHTTP, Port: 80, Path: "/ready", Kind: Readiness, Interval: time.Second},
		{Type: api.CheckTCP, Port: 80, Kind: Observation, Interval: time.Hour},
	}, now)
	next := func(v Verdict) (Change, bool) {
		t.Helper()
		now = now.Add(2 * time.Second)
		for {
			pr, ok := b.Take(now)
			if !ok {
				t.Fatal("nothing is due")
			}
			if pr.Check.Kind != Observation {
				return b.Done(pr, Outcome{Verdict: v, Message: "refused"}, now)
			}
		}
	}
	if _, told := next(Passed); told || b.Health("t") != nil {
		t.Error("healthy although one check has not said so")
	}
	if c, told := next(Passed); !told || !c.Health || !*b.Health("t") {
		t.Errorf("all are content: %+v, %v", c, told)
	}
	c, told := next(Failed)
	if !told || *b.Health("t") || c.Message != "health check TCP 80 failed: refused" {
		t.Errorf("one is not content: %+v, %v", c, told)
	}
	if _, told := next(Failed); told {
		t.Error("what does not change the whole was told")
	}
	r := b.Report("t")
	if len(r) != 2 || *r[0].Healthy || r[0].Message != "refused" || r[1].Probe != api.ProbeReadiness || r[1].Type != api.CheckHTTP || *r[1].Healthy {
		t.Errorf("report %+v", r)
	}
}

func TestObservationTellsValues(t *testing.T) {
	t.Parallel()
	b := NewBoard()
	now := time.Now()
	b.Add("t", []Check{{Type: api.CheckCommand, Kind: Observation, Interval: time.Second}}, now)
	for i, c := range []struct {
		value *int
		v     Verdict
		told  bool
	}{
		{nil, Failed, false}, {new(0), Passed, true}, {new(0), Passed, false}, {new(3), Failed, true}, {new(9), Unclear, false},
		{nil, Failed, true}, {nil, Failed, false}, {new(3), Failed, true},
	} {
		now = now.Add(time.Second)
		pr, ok := b.Take(now)
		if !ok {
			t.Fatal("not due")
		}
		change, told := b.Done(pr, Outcome{Verdict: c.v, Value: c.value}, now)
		if told != c.told || told && (!change.Observed || change.Health || change.Dead || !same(b.Observed("t"), c.value)) {
			t.Errorf("%d: told %v %+v", i, told, change)
		}
	}
	if b.Health("t") != nil || b.Report("t") != nil {
		t.Error("an observation says nothing of the health")
	}
}

func TestFromSpec(t *testing.T) {
	t.Parallel()
	ports := []api.TaskPort{{Name: "web", ContainerPort: 8080, HostPort: 31000}, {Name: "metrics", HostPort: 31001}}
	spec := &api.TaskSpec{Ports: ports, HealthChecks: []api.HealthCheck{
		{Type: api.CheckRemoteHTTP, HTTP: &api.HTTPCheck{Port: 1}},
		{Type: api.CheckHTTP, HTTP: &api.HTTPCheck{PortName: "web", Path: "/health", Scheme: "https"}, DelaySeconds: 1, GracePeriodSeconds: 2, IntervalSeconds: 3, TimeoutSeconds: 4, ConsecutiveFailures: 5},
		{Type: api.CheckTCP, TCP: &api.TCPCheck{PortName: "metrics"}, Probe: api.ProbeReadiness},
		{Type: api.CheckCommand, Command: &api.CommandCheck{Value: "redis-cli ping"}},
		{Type: api.CheckGRPC, GRPC: &api.GRPCCheck{Port: 9, PortName: "web", Service: "s"}},
	}}
	got, err := FromSpec(spec)
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	h := got[0]
	if h.String() != "HTTP 8080/health" || h.Scheme != "https" || h.Delay != time.Second || h.Grace != 2*time.Second ||
		h.Interval != 3*time.Second || h.Timeout != 4*time.Second || h.Limit != 5 || h.Kind != Liveness {
		t.Errorf("http %+v", h)
	}
	if c := got[1]; c.String() != "TCP 31001" || c.Kind != Readiness || c.Interval != 60*time.Second || c.Timeout != 20*time.Second {
		t.Errorf("tcp %+v", c)
	}
	if c := got[2]; c.String() != "COMMAND" || !slices.Equal(c.Command.Argv, []string{"redis-cli", "ping"}) {
		t.Errorf("command %+v", c)
	}
	if c := got[3]; c.String() != "GRPC 9 s" {
		t.Errorf("grpc %+v", c)
	}
	for want, bad := range map[string]api.HealthCheck{
		`type "UDP" is unknown`:    {Type: "UDP"},
		`type "TCP" is unknown`:    {Type: api.CheckTCP},
		`portName "db" is no port`: {Type: api.CheckTCP, TCP: &api.TCPCheck{PortName: "db"}},
		`port 70000 is no port`:    {Type: api.CheckHTTP, HTTP: &api.HTTPCheck{Port: 70000}},
		`command is empty`:         {Type: api.CheckCommand, Command: &api.CommandCheck{Value: " "}},
		`probe "startup"`:          {Type: api.CheckTCP, Probe: "startup", TCP: &api.TCPCheck{Port: 1}},
	} {
		_, err := FromSpec(&api.TaskSpec{Ports: ports, HealthChecks: []api.HealthCheck{bad}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "healthChecks[0]") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// The checks of many tasks come due together, none much later than it should.
func TestChecksShareAGrid(t *testing.T) {
	t.Parallel()
	b := NewBoard()
	start := time.Now()
	moments := map[time.Duration]bool{}
	for i := range 100 {
		at := start.Add(time.Duration(i) * 7 * time.Millisecond)
		b.Add(strconv.Itoa(i), []Check{{Interval: time.Second}}, at)
		pr, ok := b.Take(at)
		if !ok {
			t.Fatal("not due")
		}
		b.Done(pr, Outcome{Verdict: Passed}, at)
		late := pr.at.due.Sub(at.Add(time.Second))
		if late < 0 || late > 50*time.Millisecond {
			t.Errorf("due %s late", late)
		}
		moments[pr.at.due.Sub(start)] = true
	}
	if len(moments) > 20 {
		t.Errorf("due at %d moments", len(moments))
	}
}
