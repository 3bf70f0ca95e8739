package master

import (
	"encoding/base64"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/link"
)

func TestRefusedTasks(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.launch(t, f.offer(t), taskJSON("there", a.id, executorJSON("x-there")))
	a.want(t, link.EventRun)
	const cpus9999 = `,"resources":[{"name":"cpus","type":"SCALAR","scalar":{"value":9999}}]`
	for _, c := range []struct{ name, id, agent, extra, want string }{
		{"neither executor nor command", "a", "", "", "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present"},
		{"both", "a", "", executorJSON("x") + `,"command":{"value":"true"}`, "Task should have at least one (but not both)"},
		{"too large", "a", "", executorJSON("x") + cpus9999, "Total resources cpus(allocated: *):9999.1; mem(allocated: *):32 required by task and its executor is more than available ports(allocated: *):[31000-32000]; cpus"},
		{"no resources", "a", "", executorJSON("x") + `,"resources":[]`, "Task uses no resources"},
		{"a port outside", "a", "", executorJSON("x") + `,"resources":[{"name":"ports","type":"RANGES","ranges":{"range":[{"begin":22,"end":22}]}}]`, "Total resources "},
		{"another agent", "a", "no-such-agent", executorJSON("x"), "Task uses invalid agent no-such-agent while agent "},
		{"slash", "a/b", "", executorJSON("x"), "'a/b' contains invalid characters"},
		{"no id", "", "", executorJSON("x"), "ID must not be empty"},
		{"there already", "there", "", executorJSON("x"), "Task has duplicate ID: there"},
		{"executor differs", "a", "", strings.Replace(executorJSON("x-there"), `"true"`, `"false"`, 1), "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID."},
		{"executor of type DEFAULT", "a", "", `,"executor":{"type":"DEFAULT","executor_id":{"value":"x"}}`, "'ExecutorInfo.type' must be 'CUSTOM'"},
		{"health check", "a", "", executorJSON("x") + `,"health_check":{"type":"TCP"}`, "Task uses invalid health check: Expecting 'tcp' to be set for TCP health check"},
		{"check", "a", "", executorJSON("x") + `,"check":{"type":"HTTP","http":{"port":1,"path":"x"}}`, "Task uses invalid check: The path 'x' of HTTP check must start with '/'"},
		{"grace", "a", "", executorJSON("x") + `,"kill_policy":{"grace_period":{"nanoseconds":-1}}`, "Task's 'kill_policy.grace_period' must be non-negative"},
		{"negative", "a", "", executorJSON("x") + `,"resources":[{"name":"cpus","type":"SCALAR","scalar":{"value":-1}}]`, "Resource 'cpus:-1' is invalid: Invalid scalar resource: value <= 0"},
		{"variable", "a", "", `,"command":{"value":"x","environment":{"variables":[{"name":"A"}]}}`, "Task's `CommandInfo` is invalid: Environment variable 'A'"},
	} {
		agent := c.agent
		if agent == "" {
			agent = a.id
		}
		f.launch(t, f.offer(t), taskJSON(c.id, agent, c.extra))
		s := f.update(t, c.id)
		if !strings.HasPrefix(s.GetMessage(), c.want) || s.GetState() != mesos.TASK_ERROR || s.GetReason() != mesos.REASON_TASK_INVALID || s.AgentID.GetValue() != agent || s.UUID != nil {
			t.Errorf("%s: %s, want %s", c.name, describe(s), c.want)
		}
	}
	// Of one LAUNCH the good task starts, also when it is the first of two with one id.
	f.launch(t, f.offer(t), taskJSON("twice", a.id, executorJSON("x")), taskJSON("twice", a.id, executorJSON("x")))
	if run := a.want(t, link.EventRun).Run; run.Tasks[0].TaskID.Value != "twice" {
		t.Errorf("%+v", run)
	}
	if s := f.update(t, "twice"); s.GetMessage() != "Task has duplicate ID: twice" {
		t.Error(describe(s))
	}
	// 0 cpus are something: the executor has some.
	f.launch(t, f.offer(t), taskJSON("zero", a.id, executorJSON("x")+`,"resources":[{"name":"cpus","type":"SCALAR","scalar":{"value":0}}]`))
	a.want(t, link.EventRun)
}

func TestRefusedGroups(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	executor := func(change func(map[string]string)) string {
		fields := map[string]string{"type": `"CUSTOM"`, "executor_id": `{"value":"x"}`, "framework_id": `{"value":"` + f.id + `"}`,
			"command": `{"value":"true"}`, "resources": groupResource}
		change(fields)
		var parts []string
		for k, v := range fields {
			parts = append(parts, `"`+k+`":`+v)
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	set := func(k, v string) func(map[string]string) { return func(m map[string]string) { m[k] = v } }
	unset := func(k string) func(map[string]string) { return func(m map[string]string) { delete(m, k) } }
	same := func(map[string]string) {}
	scalars := func(cpus, mem, disk string) string {
		s := func(name, v string) string {
			return `{"name":"` + name + `","type":"SCALAR","scalar":{"value":` + v + `}}`
		}
		return "[" + s("cpus", cpus) + "," + s("mem", mem) + "," + s("disk", disk) + "]"
	}
	docker := `,"container":{"type":"DOCKER","docker":{"image":"x"}}`
	for _, c := range []struct {
		name   string
		change func(map[string]string)
		extra  string
		want   string
	}{
		{"docker task", same, docker, "Task 'b' is invalid: Docker ContainerInfo is not supported on the task"},
		{"docker executor", set("container", `{"type":"DOCKER","docker":{"image":"x"}}`), "", "Docker ContainerInfo is not supported on the executor"},
		{"health check", same, `,"health_check":{"type":"TCP"}`, "Task 'b' is invalid: Task uses invalid health check: "},
		{"no type", unset("type"), "", "'ExecutorInfo.type' must be set"},
		{"no framework", unset("framework_id"), "", "'ExecutorInfo.framework_id' must be set"},
		{"another framework", set("framework_id", `{"value":"no"}`), "", "ExecutorInfo has an invalid FrameworkID (Actual: no vs Expected: "},
		{"no command", unset("command"), "", "'ExecutorInfo.command' must be set for 'CUSTOM' executor"},
		{"default with command", set("type", `"DEFAULT"`), "", "'ExecutorInfo.command' must not be set for 'DEFAULT' executor"},
		{"task too large", same, `,"resources":` + scalars("9999", "1", "1"), "Total resources cpus(allocated: *):9999.2"},
		{"executor too large", set("resources", scalars("9999", "32", "1")), "", "Total resources cpus(allocated: *):9999.2"},
		{"no resources", same, `,"resources":[]`, "Task 'b' is invalid: Task uses no resources"},
		{"own executor", same, executorJSON("other"), "The `ExecutorInfo` of task 'b' is different from executor 'x'"},
		{"no disk", set("resources", scalars("0.1", "32", "0")), "", "Executor 'x' uses no disk"},
		{"little memory", set("resources", scalars("0.1", "16", "1")), "", "Executor 'x' uses less memory (16MB) than the minimum required (32MB)"},
		{"few cpus", set("resources", scalars("0.001", "32", "1")), "", "Executor 'x' uses less CPUs (0.001) than the minimum required (0.01)"},
		{"nothing", unset("resources"), "", "Executor 'x' uses less CPUs (None) than the minimum required (0.01)"},
	} {
		f.launchGroup(t, f.offer(t), executor(c.change), taskJSON("a", a.id, ""), taskJSON("b", a.id, c.extra))
		for _, id := range []string{"a", "b"} {
			s := f.update(t, id)
			if !strings.HasPrefix(s.GetMessage(), c.want) || s.GetState() != mesos.TASK_ERROR || s.GetReason() != mesos.REASON_TASK_GROUP_INVALID {
				t.Errorf("%s: %s, want %s", c.name, describe(s), c.want)
			}
		}
	}
	// The same id twice ends Apache Mesos; here it is an error.
	f.launchGroup(t, f.offer(t), executor(same), taskJSON("a", a.id, ""), taskJSON("a", a.id, ""))
	if s := f.update(t, "a"); s.GetMessage() != "Task has duplicate ID: a" {
		t.Error(describe(s))
	}
	f.launchGroup(t, f.offer(t), executor(same))
	f.launchGroup(t, f.offer(t), executor(same), taskJSON("a", a.id, ""), taskJSON("b", a.id, ""))
	run := a.want(t, link.EventRun).Run
	if !run.Group || len(run.Tasks) != 2 || run.Tasks[1].Executor.ExecutorID.Value != "x" {
		t.Errorf("%+v", run)
	}
}

func TestStaleOffers(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	for capability, want := range map[string]string{
		"":                            "TASK_LOST SOURCE_MASTER REASON_INVALID_OFFERS Task launched with invalid offers: Offer ",
		`,{"type":"PARTITION_AWARE"}`: "TASK_DROPPED SOURCE_MASTER REASON_INVALID_OFFERS Task launched with invalid offers: Offer ",
	} {
		f := subscribe(t, m, "", `"capabilities":[{"type":"MULTI_ROLE"}`+capability+`],"roles":["*"]`)
		o := f.offer(t)
		f.must(t, "DECLINE", `"decline":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":0}}`)
		f.launch(t, o, taskJSON("t", a.id, executorJSON("x")))
		if got := describe(f.update(t, "t")); !strings.HasPrefix(got, want) {
			t.Error(got)
		}
		o = f.offer(t)
		f.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"},{"value":"`+o.ID.Value+`"}],"operations":[{"type":"LAUNCH","launch":{"task_infos":[`+taskJSON("d", a.id, executorJSON("x"))+`]}}]}`)
		if got := describe(f.update(t, "d")); !strings.HasPrefix(got, strings.Replace(want, "Offer ", "Duplicate offer ", 1)) {
			t.Error(got)
		}
		o = f.offer(t)
		f.must(t, "ACCEPT", `"accept":{}`)
		f.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"operations":[{"type":"NO_SUCH_OPERATION"}],"filters":{"refuse_seconds":0}}`)
		f.offer(t)
		f.must(t, "TEARDOWN", "")
	}
}

// TestResourcesThatAreNone: of a launch whose resources are no resources all tasks
// are refused, and amounts beyond all bounds are more than there is.
func TestResourcesThatAreNone(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	scalar := func(name, v string) string {
		return `{"name":"` + name + `","type":"SCALAR","scalar":{"value":` + v + `}}`
	}
	ranges := func(list string) string {
		return `{"name":"ports","type":"RANGES","ranges":{"range":[` + list + `]}}`
	}
	set := func(items string) string { return `{"name":"things","type":"SET","set":{"item":[` + items + `]}}` }
	for resources, want := range map[string]string{
		scalar("", "1"):                                                   "Resource ':1' is invalid: Empty resource name",
		scalar("cpus", "-1"):                                              "Resource 'cpus:-1' is invalid: Invalid scalar resource: value <= 0",
		scalar("cpus", "0.0001"):                                          "Resource 'cpus:0' is invalid: Invalid scalar resource: value <= 0",
		`{"name":"cpus","type":"SCALAR"}`:                                 "Resource 'cpus:0' is invalid: Invalid scalar resource",
		`{"name":"ports","type":"RANGES","scalar":{"value":1}}`:           "Invalid ranges resource",
		`{"name":"a","type":"TEXT"}`:                                      "Unsupported resource type",
		ranges(`{"begin":2,"end":1}`):                                     "Invalid ranges resource: begin > end",
		ranges(`{"begin":31000,"end":31005},{"begin":31001,"end":31001}`): "Invalid ranges resource: overlapping ranges",
		set(`"x","y","x"`):                                                "Invalid set resource: duplicated elements",
		scalar("cpus", "1e300"):                                           "Total resources ",
		scalar("cpus", "9223372036854776"):                                "Total resources ",
	} {
		f.launch(t, f.offer(t), taskJSON("bad", a.id, executorJSON("x")+`,"resources":[`+resources+`]`), taskJSON("beside", a.id, executorJSON("x")))
		s := f.update(t, "bad")
		if !strings.Contains(s.GetMessage(), want) || s.GetState() != mesos.TASK_ERROR || s.GetReason() != mesos.REASON_TASK_INVALID {
			t.Errorf("%s: %s", resources, describe(s))
		}
		if want == "Total resources " {
			// Only one task asks for too much; the other one runs, and ends here.
			a.want(t, link.EventRun)
			f.must(t, "ACKNOWLEDGE", `"acknowledge":{"agent_id":{"value":"`+a.id+`"},"task_id":{"value":"beside"},"uuid":"`+
				base64.StdEncoding.EncodeToString(a.report(t, f.id, "x", "beside", mesos.TASK_FINISHED))+`"}`)
			f.update(t, "beside")
			continue
		}
		if s := f.update(t, "beside"); s.GetState() != mesos.TASK_ERROR || !strings.Contains(s.GetMessage(), want) {
			t.Errorf("beside %s: %s", resources, describe(s))
		}
	}
}
