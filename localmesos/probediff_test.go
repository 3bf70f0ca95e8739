package localmesos_test

import (
	"slices"
	"strings"
	"testing"
)

// difference is one finding of the prober's comparison.
type difference struct{ scenario, stream, text string }

// String is the difference in one line.
func (d difference) String() string {
	return "\n" + d.scenario + " " + d.stream + ": " + d.text
}

// named are the differences that stay, each with its reason, which README.md
// gives at length. No framework can depend on any of them.
var named = []struct{ scenario, stream, text, why string }{
	{"05-launch-group", "scheduler/S1/events/UPDATE/bad05", `"'ExecutorInfo.type' must be set", not "Unknown executor type"`,
		"the Go types do not tell an executor's type UNKNOWN from none"},
	{"05-launch-group", "scheduler/S1/events/UPDATE/bad30", "required by task and its executor is more than available",
		"an empty task group takes its executor's resources for good in Apache Mesos"},
	{"05-launch-group", "scheduler/S1/events/UPDATE/bad32", "required by task and its executor is more than available",
		"an empty task group takes its executor's resources for good in Apache Mesos"},
}

// unnamed are the differences that nobody has named.
func unnamed(all []difference) []difference {
	return slices.DeleteFunc(all, func(d difference) bool {
		for _, n := range named {
			if n.scenario == d.scenario && n.stream == d.stream && strings.HasPrefix(d.text, "message ") && strings.Contains(d.text, n.text) {
				return true
			}
		}
		return false
	})
}

// differences reads the prober's report: a line "== SCENARIO: ...", then the
// name of each stream and below it, further in, what differs there.
func differences(report string) []difference {
	var out []difference
	scenario, stream := "", ""
	for line := range strings.Lines(report) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "== "):
			scenario, _, _ = strings.Cut(strings.TrimPrefix(text, "== "), ":")
			stream = ""
		case strings.HasPrefix(line, "    "):
			out = append(out, difference{scenario, stream, text})
		case strings.HasPrefix(line, "  "):
			stream = text
		}
	}
	return out
}

// scenariosOf are the scenarios that differ, each once.
func scenariosOf(all []difference) []string {
	var out []string
	for _, d := range all {
		if !slices.Contains(out, d.scenario) {
			out = append(out, d.scenario)
		}
	}
	return out
}

func TestReportIsRead(t *testing.T) {
	t.Parallel()
	const report = `== 01-subscribe: the same (0 ignored)
== 05-launch-group: 2 differences (0 ignored)
  scheduler/S1/events/UPDATE/bad05
    message  event UPDATE TASK_ERROR: update.status.message is "'ExecutorInfo.type' must be set", not "Unknown executor type"
    value    event UPDATE TASK_ERROR: update.status.state is TASK_LOST, not TASK_ERROR
== 15-operator: 1 differences (2 ignored)
  operator/master
    header   [master, POST /api/v1] response GET_STATE: Content-Length is "", not "present"
3 differences in all
`
	all := differences(report)
	if len(all) != 3 || all[2].scenario != "15-operator" || all[2].stream != "operator/master" || !strings.HasPrefix(all[2].text, "header ") {
		t.Fatalf("%v", all)
	}
	rest := unnamed(all)
	if len(rest) != 2 || !strings.HasPrefix(rest[0].text, "value ") || !slices.Equal(scenariosOf(rest), []string{"05-launch-group", "15-operator"}) {
		t.Errorf("%v", rest)
	}
}
