package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/wire"
)

// talk runs a loop with web-0 running on a clock that passes when all wait, and
// hands what executors are sent to hear.
func talk(t *testing.T, hear func(h *harness, c *mesosapi.Call_Message, m api.Message), f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := connected(t, 1)
		h.apply(web(1, "", ""))
		h.running()
		h.l.s.o.Now = time.Now
		if hear != nil {
			h.m.hear = func(c *mesosapi.Call_Message) {
				var m api.Message
				if err := json.Unmarshal(c.Data, &m); err != nil {
					t.Error(err)
				}
				hear(h, c, m)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = h.l.run(ctx) }()
		f(h)
		if err := h.l.call(ctx, func() error {
			if n := len(h.l.messages); n > 0 {
				t.Errorf("%d messages are still waited for", n)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
	})
}

// reply answers a message as the executor that it was sent to.
func reply(h *harness, c *mesosapi.Call_Message, result api.MessageResult) {
	result.Version = api.TaskSpecVersion
	data, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	_ = h.l.Handle(context.Background(), mesos.Messaged{AgentID: c.AgentID.Value, ExecutorID: c.ExecutorID.Value, Data: data})
}

// say posts a message to a taskgroup and returns the status, the result and the problem.
func say(h *harness, name, body string) (int, api.MessageResult, wire.Problem) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader(body))
	r.SetPathValue("namespace", "test")
	r.SetPathValue("name", name)
	w := httptest.NewRecorder()
	h.l.s.handle(h.l.s.postMessage)(w, r)
	var result api.MessageResult
	var p wire.Problem
	if err := errors.Join(json.Unmarshal(w.Body.Bytes(), &result), json.Unmarshal(w.Body.Bytes(), &p)); err != nil {
		panic(err)
	}
	return w.Code, result, p
}

const hup = `{"type":"signal","signal":"HUP"}`

func TestMessageIsAnsweredByItsExecutor(t *testing.T) {
	t.Parallel()
	talk(t, func(h *harness, c *mesosapi.Call_Message, m api.Message) {
		if m.Version != api.TaskSpecVersion || m.Type != api.MessageSignal || m.Signal != "HUP" || c.ExecutorID.Value != h.l.slots[webRef][0].Group.ID {
			t.Errorf("sent %+v to %s", m, c.ExecutorID.Value)
		}
		// A stranger's answer is not heard, nor are other words.
		stranger := *c
		stranger.ExecutorID.Value = "other"
		reply(h, &stranger, api.MessageResult{ID: m.ID, Task: "stranger's"})
		reply(h, c, api.MessageResult{ID: "none"})
		_ = h.l.Handle(context.Background(), mesos.Messaged{AgentID: c.AgentID.Value, ExecutorID: c.ExecutorID.Value, Data: []byte("hello")})
		reply(h, c, api.MessageResult{ID: m.ID, Type: m.Type, Task: "t"})
		reply(h, c, api.MessageResult{ID: m.ID, Type: m.Type, Task: "again"})
	}, func(h *harness) {
		for _, name := range []string{"web-0", h.slot(0).Group.ID} {
			if status, result, p := say(h, name, hup); status != 200 || result.Task != "t" || result.ID == "" {
				t.Errorf("%s: %d %+v %+v", name, status, result, p)
			}
		}
	})
}

// TestLostMessageIsSentAgain under the same id, until it is answered or the time is over.
func TestLostMessageIsSentAgain(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	talk(t, func(h *harness, c *mesosapi.Call_Message, m api.Message) {
		if seen[m.ID]++; seen[m.ID] == 3 {
			reply(h, c, api.MessageResult{ID: m.ID, Task: "t"})
		}
	}, func(h *harness) {
		if status, result, p := say(h, "web-0", hup); status != 200 || result.Task != "t" {
			t.Errorf("%d %+v", status, p)
		}
	})
	if len(seen) != 1 {
		t.Errorf("ids %v", seen)
	}
}

func TestMessageWithoutAnAnswerTimesOut(t *testing.T) {
	t.Parallel()
	talk(t, nil, func(h *harness) {
		began := time.Now()
		status, _, p := say(h, "web-0", hup)
		if took := time.Since(began); status != 504 || p.Code != wire.CodeTimeout || !strings.Contains(p.Message, "not answered") || strings.Contains(p.Message, "no connection") || took != messageWait {
			t.Errorf("after %s: %d %+v", took, status, p)
		}
		_ = h.l.Handle(context.Background(), mesos.Disconnected{Reason: errors.New("test")})
		if status, _, p := say(h, "web-0", hup); status != 504 || !strings.Contains(p.Message, "no connection to a master") {
			t.Errorf("%d %+v", status, p)
		}
	})
}

func TestManyMessagesAtOnce(t *testing.T) {
	t.Parallel()
	var waiting []api.Message
	talk(t, func(h *harness, c *mesosapi.Call_Message, m api.Message) {
		// All are answered at once, the last first.
		if waiting = append(waiting, m); len(waiting) == messagesAtOnce {
			for i := len(waiting) - 1; i >= 0; i-- {
				reply(h, c, api.MessageResult{ID: waiting[i].ID, Task: waiting[i].Signal})
			}
		}
	}, func(h *harness) {
		var all sync.WaitGroup
		for i := range messagesAtOnce {
			all.Go(func() {
				signal := string(rune('A' + i))
				if status, result, p := say(h, "web-0", `{"type":"signal","signal":"`+signal+`"}`); status != 200 || result.Task != signal {
					t.Errorf("%s: %d %+v %+v", signal, status, result, p)
				}
			})
		}
		all.Wait()
	})
}

func TestTooManyMessagesAreRefused(t *testing.T) {
	t.Parallel()
	talk(t, nil, func(h *harness) {
		var all sync.WaitGroup
		for range messagesAtOnce {
			all.Go(func() {
				if status, _, p := say(h, "web-0", hup); status != 504 {
					t.Errorf("%d %+v", status, p)
				}
			})
		}
		synctest.Wait()
		if status, _, p := say(h, "web-0", hup); status != 503 || !strings.Contains(p.Message, "taskgroup web-0 has 16 messages under way") {
			t.Errorf("%d %+v", status, p)
		}
		all.Wait()
	})
}

func TestMessagesThatAreRefused(t *testing.T) {
	t.Parallel()
	talk(t, func(h *harness, c *mesosapi.Call_Message, m api.Message) {
		reply(h, c, api.MessageResult{ID: m.ID, Error: "no such luck"})
	}, func(h *harness) {
		for _, c := range []struct {
			name, body string
			status     int
			text       string
		}{
			{"web-0", hup, 409, "no such luck"},
			{"web-7", hup, 404, `"web-7" does not exist`},
			{"web-0", `{`, 400, "no JSON"},
			{"web-0", `{"type":"sing"}`, 400, "is unknown"},
			{"web-0", `{"type":"signal","signal":"` + strings.Repeat("x", api.MaxMessage) + `"}`, 400, "bytes"},
			{"web-0", `{"type":"resources","resources":{"requests":{"cpus":7}}}`, 409, "more than the 0.15 that Mesos"},
			{"web-0", `{"type":"resources","resources":{"requests":{"cpus":2},"limits":{"cpus":1}}}`, 400, "more than the limit"},
		} {
			if status, _, p := say(h, c.name, c.body); status != c.status || !strings.Contains(p.Message, c.text) {
				t.Errorf("%.60s: %d %+v", c.body, status, p)
			}
		}
	})
}

// TestMessageToATaskgroupThatEnds: the request does not wait for an executor that is gone.
func TestMessageToATaskgroupThatEnds(t *testing.T) {
	t.Parallel()
	talk(t, func(h *harness, _ *mesosapi.Call_Message, _ api.Message) {
		for _, task := range h.m.tasks {
			h.m.update(task, mesoslib.TASK_FINISHED)
		}
		for _, e := range h.m.events {
			_ = h.l.Handle(context.Background(), e)
		}
		h.m.events = nil
	}, func(h *harness) {
		began := time.Now()
		if status, _, p := say(h, "web-0", hup); status != 409 || !strings.Contains(p.Message, "has ended") || time.Since(began) > 3*time.Second {
			t.Errorf("%d %+v", status, p)
		}
	})
}
