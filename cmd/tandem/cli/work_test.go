package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/scheduler/wire"
)

func expect(t *testing.T, r result, code exit.Code, out, errOut []string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; err: %s", r.code, code, r.errOut)
	}
	for _, want := range out {
		if !strings.Contains(r.out, want) {
			t.Errorf("output lacks %q:\n%s", want, r.out)
		}
	}
	for _, want := range errOut {
		if !strings.Contains(r.errOut, want) {
			t.Errorf("error lacks %q:\n%s", want, r.errOut)
		}
	}
}

func TestGetTables(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "get", "tg"), exit.OK, []string{
		"NAMESPACE  NAME   STATE    READY  AGENT      PORTS           RESTARTS  AGE  MESSAGE\n",
		"test       web-0  RUNNING    1/1  127.0.0.1  http:31000->80         0  30s  -\n",
		"test       web-1  FAILED     0/1  127.0.0.2  -                      4  30s  main: exit code 3\n",
	}, nil)
	expect(t, with(t, b, "", "get", "tasks", "-o", "wide"), exit.OK, []string{"0123456789ab ", " 77 ", "1.0.1.web.test.c"}, nil)
	expect(t, with(t, b, "", "get", "apps"), exit.OK, []string{"test       web     1/2           2         0  30s  1 of 2 run\n"}, nil)
	expect(t, with(t, b, "", "get", "agents"), exit.OK, []string{"127.0.0.1  ACTIVE  1.5/4  128/4096 MiB  0/1000 MiB  1/1000           1  rack:r1;zone:a\n"}, nil)
	expect(t, with(t, b, "", "get", "all", "-n", "test"), exit.OK, []string{"applications\n", "services\n", "taskgroups\n"}, nil)
	expect(t, with(t, b, "", "get", "app,svc", "-o", "name"), exit.OK, []string{"application/test/web\nservice/test/web\n"}, nil)
	expect(t, with(t, b, "", "get", "secrets"), exit.OK, nil, []string{"there are no secrets"})
	expect(t, with(t, b, "", "get", "apps", "-n", "prod"), exit.OK, nil, []string{"there are no applications in namespace prod\n"})
}

func TestGetGivesBackWhatWasApplied(t *testing.T) {
	t.Parallel()
	b := webStack()
	for _, args := range [][]string{{"get", "app", "web"}, {"get", "app/web"}, {"get", "application/test/web"}, {"get", "app", "web", "-n", "test"}} {
		r := with(t, b, "", append(args, "-o", "json")...)
		var got, want any
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		_ = json.Unmarshal([]byte(webRaw), &want)
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		if string(g) != string(w) {
			t.Errorf("%v:\n%s\nwant\n%s", args, g, w)
		}
		if strings.Index(r.out, `"kind"`) > strings.Index(r.out, `"apiVersion"`) {
			t.Errorf("the order of keys was changed:\n%s", r.out)
		}
	}
	for _, format := range []string{"json", "yaml"} {
		r := with(t, b, "", "get", "app,svc", "-o", format)
		docs, _, err := api.Decode(strings.NewReader(r.out), "out", api.Options{Strict: true})
		if err != nil || len(docs) != 2 {
			t.Errorf("%s: %d documents, %v\n%s", format, len(docs), err, r.out)
		}
	}
}

func TestGetNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "get", "app", "wbe"), exit.NotFound, nil, []string{`application "wbe" not found; did you mean "web"?`})
	expect(t, with(t, b, "", "get", "app", "web", "-n", "prod"), exit.NotFound, nil, []string{`application "web" not found in namespace prod`})
	expect(t, with(t, b, "", "get", "aps"), exit.NotFound, nil, []string{`unknown kind "aps"; did you mean "app"?`})
	expect(t, with(t, b, "", "get"), exit.Usage, nil, []string{"missing argument KIND"})
	expect(t, with(t, b, "", "get", "apps", "-w", "-o", "json"), exit.Usage, nil, []string{"--watch"})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "describe", "app", "web"), exit.OK, []string{
		"Instances:     2 declared, 1 running, 1 ready, 2 up to date", "Taskgroup web-0", "http:31000->80", "Exit:        code 3",
		"Last output:\n      one\n      two[31m\n", "History", "Placed",
	}, nil)
	expect(t, with(t, b, "", "describe", "tg/web-1"), exit.OK, []string{"State:         FAILED"}, nil)
	expect(t, with(t, b, "", "describe", "agent", "127.0.0.1"), exit.OK, []string{"Hostname:      127.0.0.1", "web-0"}, nil)
	expect(t, with(t, b, "", "describe", "app", "web", "-o", "json"), exit.OK, []string{`"taskgroups": [`, `"desired": 2`, `"reason": "Placed"`, `"output": "one`}, nil)
	expect(t, with(t, b, "", "describe", "tg/web-1", "-o", "yaml"), exit.OK, []string{"exitCode: 3", "reason: Placed"}, nil)
	expect(t, with(t, b, "", "describe", "agent", "127.0.0.1", "-o", "json"), exit.OK, []string{`"hostname": "127.0.0.1"`, `"name": "web-0"`}, nil)
	expect(t, with(t, b, "", "describe", "svc", "none", "-o", "json"), exit.NotFound, nil, []string{`service "none" not found`})
	expect(t, with(t, b, "", "describe", "svc", "none"), exit.NotFound, nil, []string{`service "none" not found`})
}

func TestApplyWaitsUntilAllRun(t *testing.T) {
	t.Parallel()
	b := webStack()
	looks := 0
	b.advance = func(f *fakeBackend) {
		if looks++; looks == 4 {
			f.objects[0].Status = &wire.Status{Desired: 2, Ready: 2, Settled: true}
		}
	}
	r := with(t, b, webRaw, "apply", "-f", "-", "--wait")
	expect(t, r, exit.OK, []string{"application/test/web created\n"}, []string{"application/web 1/2 ready (1 of 2 run)\n"})
	if !b.did("apply 1 false") {
		t.Errorf("%v", b.calls)
	}
}

func TestApplyTellsWhyItGaveUp(t *testing.T) {
	t.Parallel()
	r := with(t, webStack(), webRaw, "apply", "-f", "-", "--wait", "--timeout", "300ms")
	expect(t, r, exit.TimedOut, nil, []string{"not reached within 300ms: application/web 1/2 ready", "test/web-1 is FAILED: main: exit code 3"})
	b := webStack()
	b.objects[0].Status.Failed, b.objects[0].Status.Message = true, "restart policy Never: exit code 3"
	expect(t, with(t, b, webRaw, "apply", "-f", "-", "--wait"), exit.Failure, nil, []string{"application/test/web failed: restart policy Never"})
}

func TestApplyRefusesBadInputBeforeItAsks(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, `{"kind":"application"`, "apply", "-f", "-"), exit.Usage, nil, []string{"stdin:1:"})
	expect(t, with(t, b, webRaw, "apply", "-f", "-", "--timeout", "-1s"), exit.Usage, nil, []string{"--timeout"})
	if len(b.calls) > 0 {
		t.Errorf("the scheduler was asked: %v", b.calls)
	}
	r := with(t, b, webRaw, "apply", "-f", "-", "--dry-run", "--wait")
	expect(t, r, exit.OK, []string{"application/test/web created (dry run)\n"}, nil)
}

func TestScale(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "scale", "app/web", "4", "-n", "test"), exit.OK, []string{"application/test/web scaled to 4\n"}, nil)
	expect(t, with(t, b, "", "scale", "app", "web", "--replicas", "0", "-n", "test"), exit.OK, nil, nil)
	if !b.did("scale application/test/web 4") || !b.did("scale application/test/web 0") {
		t.Errorf("%v", b.calls)
	}
	for want, args := range map[string][]string{
		"is missing":           {"scale", "app", "web"},
		"not a number":         {"scale", "app", "web", "many"},
		"use 0 to":             {"scale", "app", "web", "--replicas", "-1"},
		"given twice":          {"scale", "app", "web", "1", "--replicas", "1"},
		"cannot be scaled":     {"scale", "svc", "web", "1"},
		"unexpected argument":  {"scale", "app", "web", "1", "2"},
		"missing argument":     {"scale"},
		"invalid argument \"x": {"scale", "app", "web", "--replicas", "x"},
	} {
		expect(t, with(t, b, "", args...), exit.Usage, nil, []string{want})
	}
	expect(t, with(t, b, "", "scale", "app", "web", "1"), exit.NotFound, nil, []string{`not in namespace defaultGroup but in test: choose it with -n`})
}

func TestRestartWaitsForNewTaskgroups(t *testing.T) {
	t.Parallel()
	b := webStack()
	looks := 0
	b.advance = func(f *fakeBackend) {
		if looks++; looks == 5 {
			for i := range f.groups {
				f.groups[i].ID, f.groups[i].Ready = f.groups[i].ID+"9", true
			}
		}
	}
	expect(t, with(t, b, "", "restart", "app", "web", "-n", "test", "--wait"), exit.OK, []string{"application/test/web restarting"}, []string{"0/2 ready, 2 old ones left"})
	expect(t, with(t, b, "", "restart", "tg/test/web-0"), exit.OK, []string{"taskgroup/test/web-0 restarting"}, nil)
	expect(t, with(t, b, "", "restart", "svc", "web"), exit.Usage, nil, []string{"cannot be restarted"})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := webStack()
	looks := 0
	b.advance = func(f *fakeBackend) {
		if looks++; looks == 6 {
			f.groups = nil
		}
	}
	r := with(t, b, webRaw+goodService, "delete", "-f", "-", "--wait")
	expect(t, r, exit.OK, []string{"application/test/web deleted\nservice/test/web deleted\n"}, []string{"2 taskgroups left: web-0, web-1\n"})
	expect(t, with(t, b, "", "delete", "app/web", "svc/web", "-n", "test"), exit.OK, []string{"service/test/web deleted"}, nil)
	expect(t, with(t, b, "", "delete", "app", "none"), exit.NotFound, nil, []string{`application "none" not found in namespace defaultGroup`})
	expect(t, with(t, b, "", "delete", "app", "none", "--ignore-not-found"), exit.OK, nil, nil)
	expect(t, with(t, b, "", "delete"), exit.Usage, nil, []string{"nothing to delete"})
	expect(t, with(t, b, "", "delete", "tg/web-0"), exit.Usage, nil, []string{"cannot be deleted"})
	expect(t, with(t, b, "", "delete", "app", "web", "-f", "-"), exit.Usage, nil, []string{"both given"})
}

func TestLogs(t *testing.T) {
	t.Parallel()
	b := webStack()
	if r := with(t, b, "", "logs", "web-0"); r.code != exit.OK || r.out != "0 main\nno end" {
		t.Errorf("%+v", r)
	}
	for _, arg := range []string{"web", "app/web", "application/test/web"} {
		if r := with(t, b, "", "logs", arg); r.code != exit.OK || r.out != "web-0 main | 0 main\nweb-0 main | no end\nweb-1 main | 1 main\nweb-1 main | no end\n" {
			t.Errorf("%s: %+v", arg, r)
		}
	}
	expect(t, with(t, b, "", "logs", "web-0", "--task", "main", "--stderr", "-f", "--tail", "5"), exit.OK, nil, nil)
	if !b.did("logs main {Stream:stderr Follow:true Tail:5}") {
		t.Errorf("%v", b.calls)
	}
	// Between two starts there is no taskgroup, and what the last one wrote is what one looks for.
	b.groups[1].ID = ""
	expect(t, with(t, b, "", "logs", "web-1"), exit.OK, []string{"- 1.0.1.web.test.c\n"}, nil)
	expect(t, with(t, b, "", "logs", "wbe"), exit.NotFound, nil, []string{`taskgroup "wbe" not found; did you mean "web"?`})
	expect(t, with(t, b, "", "logs", "web-0", "--task", "x"), exit.NotFound, nil, []string{`no task "x" in web-0; tasks are main`})
	expect(t, with(t, b, "", "logs", "svc/web"), exit.Usage, nil, []string{"has no logs"})
}

// The files of a process's logPath: listed, read and completed.
func TestLogsOfLogPath(t *testing.T) {
	t.Parallel()
	b := webStack()
	b.groups[0].State = wire.Running
	b.groups[0].Tasks[0].Kind = api.TaskProcess
	expect(t, with(t, b, "", "logs", "web-0", "--list"), exit.OK, []string{"web-0      main  stdout", "web-0      main  log/own.log      5  2001-09-0"}, nil)
	expect(t, with(t, b, "", "logs", "web", "--list", "-o", "json"), exit.OK, []string{`"stream": "log/own.log",` + "\n" + `      "size": 5`, `"taskgroup": "web-1"`}, nil)
	expect(t, with(t, b, "", "logs", "web-0", "--stream", "log/own.log", "--tail", "3"), exit.OK, nil, nil)
	if !b.did("logs main {Stream:log/own.log Follow:false Tail:3}") {
		t.Errorf("%v", b.calls)
	}
	expect(t, with(t, b, "", "__complete", "logs", "web-0", "--stream", "l"), exit.OK, []string{"log\nlog/own.log\n"}, nil)
	expect(t, with(t, b, "", "__complete", "logs", "web-0", "--task", ""), exit.OK, []string{"main\n"}, nil)
	for want, args := range map[string][]string{
		`stream "log/a/b" is none`: {"--stream", "log/a/b"}, `stream "out" is none`: {"--stream", "out"}, `stream "log/" is none`: {"--stream", "log/"},
		"both given": {"--stderr", "--stream", "log"}, "leave the other flags out": {"--list", "-f"}, "-o is for --list": {"-o", "json"},
	} {
		expect(t, with(t, b, "", append([]string{"logs", "web-0"}, args...)...), exit.Usage, nil, []string{want})
	}
	// What one that has ended wrote is kept, also while there is no taskgroup; one that does not run yet has nothing.
	b.groups[0].State, b.groups[0].ID, b.groups[0].Tasks[0].State = wire.Failed, "", "FAILED"
	expect(t, with(t, b, "", "logs", "web-0", "--list"), exit.OK, []string{"log/own.log"}, nil)
	if !b.did("logfiles " + b.groups[0].Tasks[0].ID) {
		t.Errorf("%v", b.calls)
	}
	b.groups[0].Tasks[0].State = "STAGING"
	if r := with(t, b, "", "logs", "web-0", "--list"); strings.Contains(r.out, "own.log") {
		t.Error(r.out)
	}
	b.groups[0].Tasks[0].State = "FAILED"
	b.err = errors.New("it does not answer")
	expect(t, with(t, b, "", "logs", "web-0", "--list"), exit.Failure, nil, []string{"it does not answer"})
}

func TestCompletionAsksTheScheduler(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "__complete", "get", ""), exit.OK, []string{"taskgroups\n"}, nil)
	expect(t, with(t, b, "", "__complete", "get", "tg", "w"), exit.OK, []string{"web-0\nweb-1\n"}, nil)
	expect(t, with(t, b, "", "__complete", "scale", "app/"), exit.OK, []string{"app/web\n"}, nil)
	expect(t, with(t, b, "", "__complete", "get", "apps", "-n", ""), exit.OK, []string{"test\n"}, nil)
	expect(t, with(t, b, "", "__complete", "get", "apps", "-o", ""), exit.OK, []string{"json\n"}, nil)
	expect(t, with(t, b, "", "__complete", "logs", ""), exit.OK, []string{"web-0\n"}, nil)
}

// TestGetWatchShowsWhatChanges lets a taskgroup fail and go between two looks.
func TestGetWatchShowsWhatChanges(t *testing.T) {
	t.Parallel()
	b := webStack()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	b.advance = func(f *fakeBackend) {
		switch looks++; looks {
		case 2:
			f.groups[0].State, f.groups[0].Message = "Failed", "it broke"
		case 3:
			f.groups = f.groups[:1]
		case 4:
			cancel()
		}
	}
	var out, errOut bytes.Buffer
	s := Streams{Out: &out, Err: &errOut, Getenv: func(string) string { return "" }}
	a := newApp(s)
	a.connect = func(string) (backend, error) { return b, nil }
	if code := a.execute(ctx, []string{"get", "tg", "--watch"}, s); code != exit.OK {
		t.Errorf("code %d: %s", code, errOut.String())
	}
	text := out.String()
	if strings.Count(text, "web-0") != 2 || strings.Count(text, "web-1") != 1 || !strings.Contains(text, "it broke") || !strings.Contains(text, "1.web.test.c.1 is gone") {
		t.Errorf("shown:\n%s", text)
	}
}
