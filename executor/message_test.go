package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/api"
	"tandem/executor/health"
)

// say sends the text of a message and returns the answers to it.
func (r *rig) say(text string) []api.MessageResult {
	before := len(r.answers())
	r.agent.send(&executor.Event{Type: executor.Event_MESSAGE, Message: &executor.Event_Message{Data: []byte(text)}})
	r.pass(time.Second)
	return r.answers()[before:]
}

func (r *rig) answers() []api.MessageResult {
	r.agent.mu.Lock()
	defer r.agent.mu.Unlock()
	var out []api.MessageResult
	for _, m := range r.agent.messages {
		var x api.MessageResult
		if err := json.Unmarshal([]byte(m), &x); err != nil {
			x.Error = err.Error()
		}
		out = append(out, x)
	}
	return out
}

// TestE12MessagesAreAnswered: each with its id and what came of it, and what is not
// understood with a reason.
func TestE12MessagesAreAnswered(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.settle()
		for i, c := range []struct{ text, call, task, err string }{
			{`"type":"signal","task":"a","signal":"HUP"`, "signal a hangup", "a", ""},
			{`"type":"signal","task":"task-b","signal":"10"`, "signal b user defined signal 1", "b", ""},
			{`"type":"resources","task":"a","resources":{"limits":{"cpus":2}}`, "update a 2", "a", ""},
			{`"type":"resources","task":"a","resources":{"limits":{"cpus":13}}`, "update a 13", "a", "not thirteen"},
			{`"type":"resources","task":"a","resources":{"requests":{"memMB":64}}`, "update a 2", "a", ""},
			{`"type":"resources","task":"a","resources":{"requests":{"cpus":3}}`, "", "a", "more than the limit of 2; change both"},
			{`"type":"resources","task":"a","resources":{}`, "", "", "name no amount"},
			{`"type":"resources","task":"a","resources":{"limits":{"cpus":1},"requests":{"cpus":2}}`, "", "", "more than the limit"},
			{`"type":"resources","task":"a","resources":{"limits":{"memMB":-1}}`, "", "", "no sensible amount"},
			{`"type":"signal","task":"a","signal":"SIGNAL"`, "", "a", "is unknown"},
			{`"type":"signal","task":"a"`, "", "", "signal is missing"},
			{`"type":"signal","signal":"HUP"`, "", "", "which task is meant"},
			{`"type":"signal","task":"z","signal":"HUP"`, "", "", "is not here; there are task-a, task-b"},
			{`"type":"signals","task":"a"`, "", "", "did you mean signal"},
		} {
			id := fmt.Sprint("m", i)
			got := r.say(`{"version":"tandem/v1","id":"` + id + `",` + c.text + `}`)
			if len(got) != 1 || got[0].ID != id || got[0].Version != api.TaskSpecVersion || got[0].Task != c.task ||
				(c.err == "") != (got[0].Error == "") || !strings.Contains(got[0].Error, c.err) {
				t.Errorf("%s: %+v", c.text, got)
			}
			if c.call != "" && !r.runtime.has(c.call) {
				t.Errorf("%s: no call %q in %v", c.text, c.call, r.runtime.called())
			}
		}
		if got := r.say(`{"version":"tandem/v9","id":"x","type":"signal"}`); len(got) != 1 || !strings.Contains(got[0].Error, "version") {
			t.Errorf("unknown version: %+v", got)
		}
		for _, foreign := range []string{"hello", `{"id":"x"}`, "[]", `{"version":"tandem/v1","id":"` + strings.Repeat("x", api.MaxMessage) + `"}`} {
			if got := r.say(foreign); len(got) != 0 {
				t.Errorf("%.20s: %+v", foreign, got)
			}
		}
	})
}

// TestE12MessageIsDoneOnce: one that is sent again, because its answer was lost, is
// answered again and not done again.
func TestE12MessageIsDoneOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		const text = `{"version":"tandem/v1","id":"1","type":"signal","signal":"USR1"}`
		first, second := r.say(text), r.say(text)
		if len(first) != 1 || len(second) != 1 || !reflect.DeepEqual(first[0], second[0]) || first[0].Error != "" {
			t.Errorf("%+v, then %+v", first, second)
		}
		n := 0
		for _, c := range r.runtime.called() {
			if strings.HasPrefix(c, "signal") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("done %d times", n)
		}
	})
}

// TestResourcesThatAreNotNamedStay: a change adds to those before it, and the
// answer tells what the task has now.
func TestResourcesThatAreNotNamedStay(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		for i, c := range []struct {
			change string
			want   api.ResourceUpdate
		}{
			{`{"limits":{"cpus":2,"memMB":128}}`, api.ResourceUpdate{Limits: api.TaskResources{CPUs: 2, MemMB: 128}}},
			{`{"requests":{"cpus":0.5}}`, api.ResourceUpdate{Requests: api.TaskResources{CPUs: 0.5}, Limits: api.TaskResources{CPUs: 2, MemMB: 128}}},
			{`{"limits":{"cpus":0}}`, api.ResourceUpdate{Requests: api.TaskResources{CPUs: 0.5}, Limits: api.TaskResources{MemMB: 128}}},
		} {
			got := r.say(`{"version":"tandem/v1","id":"` + fmt.Sprint("r", i) + `","type":"resources","resources":` + c.change + `}`)
			if len(got) != 1 || got[0].Error != "" || got[0].Resources == nil || *got[0].Resources != c.want {
				t.Errorf("%s: %+v", c.change, got)
			}
		}
	})
}

func TestMessageToATaskThatHasEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.settle()
		r.runtime.exit("a", Exit{Known: true})
		r.pass(time.Second)
		got := r.say(`{"version":"tandem/v1","id":"1","type":"signal","task":"a","signal":"USR1"}`)
		if len(got) != 1 || !strings.Contains(got[0].Error, "does not run") {
			t.Errorf("%+v", got)
		}
	})
}

// TestMessagesThatARuntimeMayTake: each is done by a runtime that can, with its result;
// refused by one that cannot, with what can be done instead; and refused where the operator forbids it.
func TestMessagesThatARuntimeMayTake(t *testing.T) {
	t.Parallel()
	cases := []struct{ text, call, cannot string }{
		{`"type":"upload","upload":{"path":"/etc/x","content":"aGk="}`, `upload a /etc/x "hi"`, "takes no files"},
		{`"type":"restart"`, "restart a 1s", "restart its taskgroup"},
		{`"type":"commit","commit":{"image":"team/app:1"}`, "commit a team/app:1", "this is for containers"},
		{`"type":"reload"`, "reload a", "send it the signal"},
		{`"type":"exec","exec":{"command":["sh"]}`, "", "has no sessions"},
	}
	send := func(r *rig, id, text string) api.MessageResult {
		got := r.say(`{"version":"tandem/v1","id":"` + id + `","task":"a",` + text + `}`)
		if len(got) != 1 || got[0].ID != id {
			t.Fatalf("%s: %+v", text, got)
		}
		return got[0]
	}
	run := func(dress func(*scripted) Runtime, body func(*rig)) {
		inBubble(t, func(r *rig) { r.dress = dress }, func(r *rig) {
			r.agent.launch(taskInfo("a", 0))
			r.settle()
			body(r)
		})
	}
	run(func(s *scripted) Runtime { return able{scripted: s} }, func(r *rig) {
		for i, c := range cases {
			if c.call == "" {
				continue
			}
			got := send(r, fmt.Sprint("m", i), c.text)
			want := ""
			if got.Type == api.MessageReload {
				want = "reloadCmd: exit code 1"
			}
			if got.Error != want || !r.runtime.has(c.call) {
				t.Errorf("%s: %+v, %v", c.text, got, r.runtime.called())
			}
			if (got.ImageID == "sha256:1234") != (got.Type == api.MessageCommit) {
				t.Errorf("%s: image %q", c.text, got.ImageID)
			}
		}
		for i, c := range []struct{ text, err string }{
			{`"type":"upload"`, "names no file"}, {`"type":"upload","upload":{"path":"/x/"}`, "names no file"},
			{`"type":"upload","upload":{"path":"/x","mode":2541}`, "other than permission bits"},
			{`"type":"upload","upload":{"path":"/x","content":"` + strings.Repeat("AAAA", api.MaxUpload/3+1) + `"}`, "at most 1048576"},
			{`"type":"commit"`, "names no image"}, {`"type":"commit","commit":{"image":"a@sha256:00"}`, "without a digest"},
		} {
			if got := send(r, fmt.Sprint("bad", i), c.text); !strings.Contains(got.Error, c.err) {
				t.Errorf("%.60s: %.200s", c.text, got.Error)
			}
		}
	})
	run(nil, func(r *rig) {
		for i, c := range cases {
			if got := send(r, fmt.Sprint("m", i), c.text); !strings.Contains(got.Error, c.cannot) {
				t.Errorf("%s: %+v", c.text, got)
			}
		}
	})
	for _, forbidden := range api.MessageTypes() {
		run(func(s *scripted) Runtime { return able{scripted: s, forbidden: api.MessageType(forbidden)} }, func(r *rig) {
			before := len(r.runtime.called())
			for i, c := range append(cases, struct{ text, call, cannot string }{text: `"type":"signal","signal":"HUP"`},
				struct{ text, call, cannot string }{text: `"type":"resources","resources":{"limits":{"cpus":2}}`}) {
				if strings.Contains(c.text, `"type":"`+forbidden+`"`) {
					if got := send(r, fmt.Sprint("m", i), c.text); got.Error != "the policy forbids it" || len(r.runtime.called()) != before {
						t.Errorf("%s: %+v, %v", c.text, got, r.runtime.called()[before:])
					}
				}
			}
		})
	}
}

// TestRestartIsNoFailureOfChecks: while a task is restarted nobody checks it; then it is
// checked as a new one, and its report names the new process.
func TestRestartIsNoFailureOfChecks(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"succeeds": nil, "is refused": errors.New("not now")} {
		inBubble(t, func(r *rig) {
			up := true
			r.runtime.check = func(context.Context, string, int) (health.CommandResult, error) {
				if !up {
					t.Errorf("%s: it is checked while it is restarted", name)
				}
				return health.CommandResult{Started: true}, nil
			}
			r.dress = func(s *scripted) Runtime {
				return able{scripted: s, restart: func(ctx context.Context, _ string) (Started, error) {
					up = false
					defer func() { up = true }()
					select {
					case <-time.After(100 * time.Second):
						return Started{Pid: 77, At: time.Now()}, failure
					case <-ctx.Done():
						return Started{}, ctx.Err()
					}
				}}
			}
		}, func(r *rig) {
			r.agent.launch(taskInfo("a", 0, checkedBy(nil)))
			r.settle()
			r.pass(30 * time.Second)
			before := healthStory(r, "a")
			r.say(`{"version":"tandem/v1","id":"1","task":"a","type":"restart"}`)
			r.pass(2 * time.Minute)
			if got := r.answers(); len(got) != 1 || (got[0].Error == "") != (failure == nil) {
				t.Errorf("%s: %+v", name, got)
			}
			story, last := strings.TrimPrefix(healthStory(r, "a"), before), r.agent.of("a")
			// Unknown at first, then healthy; what was refused changes nothing that is told.
			if want := map[bool]string{true: "-h", false: "h"}[failure == nil]; story != want {
				t.Errorf("%s: health %q and then %q, want %q", name, before, story, want)
			}
			var report api.TaskReport
			if err := json.Unmarshal(last[len(last)-1].Data, &report); err != nil || (report.Pid == 77) != (failure == nil) {
				t.Errorf("%s: %+v %v", name, report, err)
			}
			if !r.running() || last[len(last)-1].GetState() != mesos.TASK_RUNNING {
				t.Errorf("%s: the task ended", name)
			}
		})
	}
}
