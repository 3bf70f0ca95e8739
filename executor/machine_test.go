package executor

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/executor/agentlink"
)

var updateFiles = flag.Bool("update", false, "write what is generated, such as the table in README.md")

func TestTableHasEveryCell(t *testing.T) {
	t.Parallel()
	for s := range stateCount {
		if len(transitions[s]) != int(eventCount) {
			t.Errorf("state %s has %d cells, want %d", s, len(transitions[s]), eventCount)
		}
		for ev := range eventCount {
			c, ok := transitions[s][ev]
			if !ok {
				t.Errorf("no cell for %s in state %s", ev, s)
				continue
			}
			if c.do >= actionCount || c.next >= stateCount {
				t.Errorf("cell %s × %s leads to nowhere: %v", s, ev, c)
			}
			if (c.do == ignore || c.do == unexpected || c.do == note || c.do == again || c.do == hasten || c.do == rewait) != (c.next == s) {
				t.Errorf("cell %s × %s: %s and the move to %s do not fit", s, ev, c.do, c.next)
			}
			if c.next < s {
				t.Errorf("cell %s × %s goes back to %s", s, ev, c.next)
			}
		}
		if _, ok := limits[s]; !ok {
			t.Errorf("state %s has no limit", s)
		}
		if (limits[s] == 0) != (transitions[s][eventDeadline].do == unexpected) {
			t.Errorf("state %s: limit %s and what a deadline does (%s) do not fit", s, limits[s], transitions[s][eventDeadline].do)
		}
	}
}

// Whatever happens or does not happen, a task that was told to end gets to its end.
func TestKillAndDeadlinesAloneLeadToTheEnd(t *testing.T) {
	t.Parallel()
	for s := range stateDone {
		at := transitions[s][eventKill].next
		if transitions[s][eventKill].do == unexpected {
			t.Errorf("KILL is not legal in state %s", s)
		}
		for range stateCount {
			if at == stateDone {
				break
			}
			at = transitions[at][eventDeadline].next
		}
		if at != stateDone {
			t.Errorf("a task killed in state %s is stuck in %s", s, at)
		}
	}
}

// TestWalkEveryCell puts a task into each state and delivers each event.
func TestWalkEveryCell(t *testing.T) {
	t.Parallel()
	for s := range stateCount {
		for ev := range eventCount {
			t.Run(fmt.Sprintf("%s × %s", s, ev), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { walk(t, s, ev) })
			})
		}
	}
}

func walk(t *testing.T, s state, ev event) {
	e := New(Options{Config: Config{ExecutorID: "e", Sandbox: t.TempDir(), ShutdownGrace: 5 * time.Second}, Link: agentlink.New(agentlink.Config{})})
	defer e.finish()
	rt := newScripted()
	info := taskInfo("a", 0)
	sib := taskInfo("b", 1)
	g := &group{}
	for _, i := range []*mesos.TaskInfo{&info, &sib} {
		spec, _, err := decodeSpec(i, "e")
		if err != nil {
			t.Fatal(err)
		}
		task := &task{id: i.TaskID.Value, info: *i, spec: spec, group: g, runtime: rt, run: &Task{ID: i.TaskID.Value, Spec: spec}}
		e.tasks[task.id] = task
		e.order = append(e.order, task)
		g.tasks = append(g.tasks, task)
	}
	a, b := g.tasks[0], g.tasks[1]
	b.state = stateStaged // keeps the group from going on by itself
	a.state = s
	if s == statePreparing || s == stateCreating || s == stateStarting || s == stateCancelling {
		a.cancelStep = func() {}
	}
	switch ev {
	case eventKill:
		a.killed = &killCause{message: "killed"}
	case eventExited:
		a.exit, a.ended = &Exit{Known: true}, true
	case eventFailed:
		a.failure = errors.New("failed")
	default:
	}
	c := transitions[s][ev]
	e.deliver(a, ev)
	if a.state != c.next {
		t.Errorf("state is %s, the table says %s", a.state, c.next)
	}
	if limits[a.state] > 0 && a.state != s && a.timer == nil {
		t.Errorf("state %s has no deadline", a.state)
	}
	told := false
	for _, u := range e.updates.list {
		told = told || u.task == a && terminal(u.status.GetState())
	}
	if ended := c.do == report || c.do == reportLeft; ended != told {
		t.Errorf("%s: terminal update made: %v", c.do, told)
	}
	failing := c.do == failRemove || c.do == failStop || c.do == expire || c.do == abandon
	if failing != (b.state == stateEnded) {
		t.Errorf("%s: sibling is %s", c.do, b.state)
	}
	// Let steps that were begun post their results, as the loop would.
	go func() {
		for {
			select {
			case <-e.inbox:
			case <-e.gone:
				return
			}
		}
	}()
	synctest.Wait()
	want := map[action]string{stop: "stop a 1s", failStop: "stop a 1s", hasten: "stop a 1s", remove: "remove a", failRemove: "remove a", abandon: "remove a", start: "start a", create: "create a", run: "wait a"}[c.do]
	if want != "" && !rt.has(want) {
		t.Errorf("%s: runtime was asked %v, want %q", c.do, rt.called(), want)
	}
}

const (
	tableBegin = "<!-- table: written by go test ./executor -run TestReadmeShowsTheTable -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

func TestReadmeShowsTheTable(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	before, rest, ok := strings.Cut(text, tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatal("README.md lacks the marks of the table")
	}
	want := before + tableBegin + renderTable() + tableEnd + after
	if want == text {
		return
	}
	if *updateFiles {
		if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Error("the table in README.md is not that of machine.go; run go test ./executor -run TestReadmeShowsTheTable -update")
}

// renderTable is the table as people read it: "·" changes nothing, "–" cannot happen.
func renderTable() string {
	var s strings.Builder
	s.WriteString("\n| state | longest |")
	for ev := range eventCount {
		fmt.Fprintf(&s, " %s |", ev)
	}
	s.WriteString("\n|---|---|" + strings.Repeat("---|", int(eventCount)) + "\n")
	for st := range stateCount {
		limit := "–"
		if limits[st] > 0 {
			limit = limits[st].String()
			if limits[st] >= time.Minute {
				limit = strings.TrimSuffix(strings.TrimSuffix(limit, "0s"), "0m")
			}
		}
		switch st {
		case stateStopping:
			limit += " + grace"
		case stateStarting:
			limit += " + start grace"
		default:
		}
		fmt.Fprintf(&s, "| **%s** | %s |", st, limit)
		for ev := range eventCount {
			switch c := transitions[st][ev]; {
			case c.do == unexpected:
				s.WriteString(" – |")
			case c.do == ignore:
				s.WriteString(" · |")
			case c.next == st:
				fmt.Fprintf(&s, " %s |", c.do)
			default:
				fmt.Fprintf(&s, " %s → **%s** |", c.do, c.next)
			}
		}
		s.WriteString("\n")
	}
	s.WriteString("\n")
	return s.String()
}
