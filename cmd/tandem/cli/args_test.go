package cli

import (
	"strings"
	"testing"

	"tandem/cmd/tandem/exit"
)

func TestTargetsMayBeWrittenInSeveralWays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		ns   string
		want string
	}{
		{[]string{"app", "web"}, "", "application/web"},
		{[]string{"App/web"}, "test", "application/test/web"},
		{[]string{"tg/test/web-0"}, "", "taskgroup/test/web-0"},
		{[]string{"process/test/db"}, "test", "process/test/db"},
		{[]string{"svc", "a", "b"}, "n", "service/n/a service/n/b"},
		{[]string{"app/a", "proc/b"}, "", "application/a process/b"},
	} {
		got, err := parseTargets(c.args, c.ns)
		if err != nil {
			t.Errorf("%v: %v", c.args, err)
			continue
		}
		var names []string
		for _, g := range got {
			names = append(names, g.String())
		}
		if s := strings.Join(names, " "); s != c.want {
			t.Errorf("%v: %s, want %s", c.args, s, c.want)
		}
	}
}

func TestWrongTargetsNameTheRemedy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		ns   string
		code exit.Code
		want string
	}{
		{[]string{"applicatoon", "web"}, "", exit.NotFound, `unknown kind "applicatoon"; did you mean "application"?; kinds are applications, processes`},
		{[]string{"app"}, "", exit.Usage, "write application NAME or application/NAME"},
		{[]string{"app/"}, "", exit.Usage, "no name"},
		{[]string{"app/a/b"}, "c", exit.Usage, "names namespace a, and -n names c"},
		{[]string{"app/a", "b"}, "", exit.Usage, `"b" is not KIND/NAME`},
	} {
		_, err := parseTargets(c.args, c.ns)
		if exit.Of(err) != c.code || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: code %d, %v; want %d, %s", c.args, exit.Of(err), err, c.code, c.want)
		}
	}
}
