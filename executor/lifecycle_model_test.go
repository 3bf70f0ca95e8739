package executor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// TestRandomTaskgroupsKeepTheirOrder lets taskgroups of any make-up live with ends
// and KILLs at any moment, and looks at what came when.
func TestRandomTaskgroupsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			inBubble(t, func(r *rig) { slow(r, rand.New(rand.NewPCG(seed, 2))) }, func(r *rig) { liveAtRandom(r, rnd) })
		})
	}
}

// slow makes every step of a runtime take a while.
func slow(r *rig, rnd *rand.Rand) {
	seconds := make(chan int)
	go func() {
		for {
			select {
			case seconds <- rnd.IntN(4):
			case <-r.Context().Done():
				return
			}
		}
	}()
	pause := func(ctx context.Context) error {
		select {
		case <-time.After(time.Duration(<-seconds) * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.runtime.prepare = func(ctx context.Context, _ *Task, _ func(string)) error { return pause(ctx) }
	r.runtime.sandbox = func(ctx context.Context, _ *Task) error { return pause(ctx) }
	r.runtime.create = func(ctx context.Context, _ *Task) error { return pause(ctx) }
	r.runtime.start = func(ctx context.Context, _ string) error { return pause(ctx) }
	r.runtime.stop = func(ctx context.Context, _ string, grace time.Duration) error {
		select {
		case <-time.After(min(grace, time.Duration(<-seconds)*time.Second)):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.runtime.remove = func(ctx context.Context, _ string) error { return pause(ctx) }
}

func liveAtRandom(r *rig, rnd *rand.Rand) {
	lifecycles := []string{api.LifecycleInit, api.LifecycleSidecar, "", api.LifecycleMain}
	kind := map[string]string{"t0": ""}
	var infos []mesos.TaskInfo
	for i := range 1 + rnd.IntN(5) {
		id := fmt.Sprintf("t%d", i)
		if i > 0 {
			kind[id] = lifecycles[rnd.IntN(len(lifecycles))]
		}
		change := []func(*api.TaskSpec){lifecycle(kind[id]), withGrace(5)}
		if rnd.IntN(2) == 0 {
			change = append(change, bridged)
		}
		infos = append(infos, taskInfo(id, rnd.IntN(9), change...))
	}
	r.agent.launch(infos...)
	for r.running() {
		r.pass(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		id := infos[rnd.IntN(len(infos))].TaskID.Value
		switch rnd.IntN(12) {
		case 0, 1, 2, 3, 4:
			r.runtime.exit(id, Exit{Known: true})
		case 5:
			r.runtime.exit(id, Exit{Known: true, Code: 1})
		case 6:
			r.agent.kill(id, 0)
		}
	}
	calls := r.runtime.called()
	at := func(call string) int {
		for i, c := range calls {
			if c == call || strings.HasPrefix(c, call+" ") {
				return i
			}
		}
		return -1
	}
	for a, ka := range kind {
		if s := r.agent.last(a); !terminal(s.GetState()) || s.GetState() == mesos.TASK_ERROR {
			r.Errorf("%s (%s) ended as %s %q", a, ka, s.GetState(), s.GetMessage())
		}
		for b, kb := range kind {
			switch {
			case api.LifecycleOrder(ka) >= api.LifecycleOrder(kb):
			case at("start "+b) >= 0 && at("start "+a) > at("start "+b):
				r.Errorf("%s (%s) started after %s (%s): %v", a, ka, b, kb, calls)
			case ka == api.LifecycleInit && at("start "+b) >= 0 && (at("remove "+a) < 0 || at("remove "+a) > at("start "+b)):
				r.Errorf("init task %s was there when %s started: %v", a, b, calls)
			}
		}
	}
	for i, c := range calls {
		name, box := strings.CutPrefix(c, "sandbox ")
		if box && !slices.Contains(calls[i:], "remove "+name) {
			r.Errorf("the sandbox stays: %v", calls)
		}
	}
}
