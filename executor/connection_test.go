package executor

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mesos/mesos-go/api/v1/lib/executor"
	"pgregory.net/rapid"
)

func TestE2UpdatesNotAcknowledgedGoAgainWithTheSameUUIDAndOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.agent.withhold = true }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.settle()
		before := append(r.agent.of("a"), r.agent.of("b")...)
		r.agent.set(func() { r.agent.withhold = false; r.agent.updates = nil })
		r.agent.drop()
		r.pass(2 * time.Second)
		r.agent.mu.Lock()
		subscription := r.agent.subscriptions[1]
		r.agent.mu.Unlock()
		if n := len(subscription.UnacknowledgedTasks); n != 2 {
			t.Errorf("%d unacknowledged tasks, want 2", n)
		}
		uuids := map[string][][]byte{}
		for _, u := range subscription.UnacknowledgedUpdates {
			id := u.Status.TaskID.Value
			uuids[id] = append(uuids[id], u.Status.UUID)
		}
		var again [][]byte
		again = append(append(again, uuids["a"]...), uuids["b"]...)
		if len(again) != len(before) {
			r.Fatalf("%d updates sent again, want %d", len(again), len(before))
		}
		for i := range before {
			if !bytes.Equal(before[i].UUID, again[i]) {
				t.Errorf("update %d has another uuid or place than before", i)
			}
		}
		// Acknowledged now: the next subscription carries nothing.
		r.agent.drop()
		r.pass(2 * time.Second)
		r.agent.mu.Lock()
		defer r.agent.mu.Unlock()
		if third := r.agent.subscriptions[2]; len(third.UnacknowledgedTasks)+len(third.UnacknowledgedUpdates) != 0 {
			t.Errorf("acknowledged updates or tasks go again: %v", third)
		}
	})
}

func TestE2ExecutorStaysUntilTheEndIsAcknowledged(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.set(func() { r.agent.withhold = true })
		r.runtime.exit("a", Exit{Known: true})
		r.pass(5 * time.Second)
		if !r.running() {
			r.Fatal("the executor ended before its terminal update was acknowledged")
		}
		// It goes again by itself, and that is acknowledged.
		r.agent.set(func() { r.agent.withhold = false })
		r.pass(resendAfter)
		if r.running() {
			t.Error("the executor did not send its terminal update again")
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
	})
}

// TestEndThatIsNeverAcknowledgedHasALimit: an agent that takes the terminal update and
// never acknowledges it does not keep the executor for ever.
func TestEndThatIsNeverAcknowledgedHasALimit(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.set(func() { r.agent.withhold = true })
		r.runtime.exit("a", Exit{Known: true})
		r.pass(limits[stateEnded] - time.Minute)
		if !r.running() {
			r.Fatal("the executor ended too early")
		}
		r.pass(2 * time.Minute)
		if r.running() {
			t.Error("the executor waits longer than its limit")
		}
		if !strings.Contains(r.log.String(), "the terminal update was never acknowledged") {
			t.Error("and does not say so")
		}
	})
}

func TestEndWhileTheAgentIsAwayIsToldWhenItIsBack(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.set(func() { r.agent.subscribeStatus, r.agent.updateStatus = 503, 503 })
		r.agent.drop()
		r.runtime.exit("a", Exit{Known: true})
		r.pass(time.Minute)
		if !r.running() {
			r.Fatal("the executor did not wait for its agent")
		}
		r.agent.set(func() { r.agent.subscribeStatus, r.agent.updateStatus = 0, 0 })
		r.pass(2 * time.Second)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
	})
}

func TestBusyAgentGetsUpdatesLaterAndInOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.agent.updateStatus = 503 }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.pass(3 * time.Second)
		r.wantStates("a")
		r.agent.set(func() { r.agent.updateStatus, r.agent.updateDelay = 0, 2*time.Second })
		r.pass(20 * time.Second)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
	})
}

func TestUpdateThatTheAgentRefusesDoesNotBlockTheRest(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.settle()
		r.agent.set(func() { r.agent.updateStatus = 400 })
		r.runtime.exit("a", Exit{Known: true})
		r.settle()
		r.agent.set(func() { r.agent.updateStatus = 0 })
		r.runtime.exit("b", Exit{Known: true})
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
	})
}

func TestE6RecoveryTimeoutEndsEverything(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.set(func() { r.agent.subscribeStatus = 503 })
		began := time.Now()
		r.agent.drop()
		r.pass(r.cfg.RecoveryTimeout - time.Second)
		if !r.running() {
			r.Fatal("the executor gave up before the recovery timeout")
		}
		err := r.ended()
		if !errors.Is(err, ErrAgentLost) {
			t.Errorf("error %v, want ErrAgentLost", err)
		}
		if took := time.Since(began); took > r.cfg.RecoveryTimeout+r.cfg.ShutdownGrace {
			t.Errorf("gave up after %s", took)
		}
		if !r.runtime.has("stop a 1s") || !r.runtime.has("remove a") {
			t.Errorf("calls %v: the task was left behind", r.runtime.called())
		}
		if n := r.agent.attempts; n < 450 {
			t.Errorf("only %d attempts in 15 minutes with delays below 2 s", n)
		}
	})
}

func TestE6RecoveryTimeoutStartsAnewWithEachLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.cfg.RecoveryTimeout = 10 * time.Second }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		for range 4 {
			r.agent.set(func() { r.agent.subscribeStatus = 503 })
			r.agent.drop()
			r.pass(7 * time.Second)
			r.agent.set(func() { r.agent.subscribeStatus = 0 })
			r.pass(2 * time.Second)
		}
		if !r.running() {
			t.Error("times without the agent were added up")
		}
	})
}

func TestE6WithoutCheckpointTheExecutorEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.cfg.Checkpoint, r.cfg.RecoveryTimeout, r.cfg.BackoffMax = false, 0, 0 }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		began := time.Now()
		r.agent.drop()
		if err := r.ended(); !errors.Is(err, ErrAgentLost) {
			t.Errorf("error %v, want ErrAgentLost", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %s", took)
		}
		if !r.runtime.has("remove a") {
			t.Error("the task was left behind")
		}
	})
}

func TestAgentThatDoesNotKnowUsEndsEverything(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		inBubble(t, nil, func(r *rig) {
			r.agent.launch(taskInfo("a", 0))
			r.settle()
			r.agent.set(func() { r.agent.subscribeStatus = status })
			r.agent.drop()
			r.pass(5 * time.Second)
			if err := r.ended(); !errors.Is(err, ErrAgentLost) {
				t.Errorf("%d: error %v, want ErrAgentLost", status, err)
			}
			if r.agent.attempts != 2 {
				t.Errorf("%d: %d attempts", status, r.agent.attempts)
			}
		})
	}
}

func TestFirstSubscriptionIsTriedUntilTheAgentWouldKillUs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.cfg.Checkpoint = false; r.agent.subscribeStatus = 503 }, func(r *rig) {
		r.pass(registrationTimeout - time.Second)
		if !r.running() {
			r.Fatal("gave up early")
		}
		if err := r.ended(); !errors.Is(err, ErrAgentLost) {
			t.Errorf("error %v", err)
		}
	})
}

func TestSubscribesBeforeSlowWork(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		if r.agent.attempts != 1 || len(r.runtime.called()) != 0 {
			t.Errorf("%d subscriptions and %v before the first event", r.agent.attempts, r.runtime.called())
		}
	})
}

func TestTokenGoesWithEveryCall(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.cfg.Token = "s3cret" }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.mu.Lock()
		defer r.agent.mu.Unlock()
		if len(r.agent.tokens) < 3 {
			r.Fatalf("%d calls", len(r.agent.tokens))
		}
		for _, token := range r.agent.tokens {
			if token != "Bearer s3cret" {
				t.Errorf("Authorization %q", token)
			}
		}
		if strings.Contains(r.log.String(), "s3cret") {
			t.Error("the token is in the log")
		}
	})
}

func TestTokenThatIsNotAcceptedForUpdatesEndsEverything(t *testing.T) {
	t.Parallel()
	for _, checkpoint := range []bool{true, false} {
		inBubble(t, func(r *rig) { r.cfg.Checkpoint, r.cfg.Token = checkpoint, "s3cret" }, func(r *rig) {
			r.agent.launch(taskInfo("a", 0))
			r.settle()
			// SUBSCRIBE is accepted all the time, but what it brings is not acknowledged.
			r.agent.set(func() { r.agent.updateStatus, r.agent.withhold = http.StatusUnauthorized, true })
			r.runtime.exit("a", Exit{Known: true})
			err := r.ended()
			if !errors.Is(err, ErrAgentLost) || !strings.Contains(err.Error(), "does not accept the executor's token") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v, want ErrAgentLost with the reason and without the token", err)
			}
			if want := map[bool]int{true: 2, false: 1}[checkpoint]; r.agent.attempts != want {
				t.Errorf("checkpoint %v: %d subscriptions, want %d", checkpoint, r.agent.attempts, want)
			}
		})
	}
}

func TestTokenThatTheAgentGivesAnewIsUsed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.cfg.Token, r.agent.token = "s3cret-1", "framework's own" }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		// From now on only the other token is good, for updates; SUBSCRIBED brings it.
		r.agent.set(func() { r.agent.token, r.agent.wantToken, r.agent.updates = "s3cret-2", "Bearer s3cret-2", nil })
		r.runtime.exit("a", Exit{Known: true})
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.agent.mu.Lock()
		defer r.agent.mu.Unlock()
		for _, token := range r.agent.tokens {
			if token != "Bearer s3cret-1" && token != "Bearer s3cret-2" {
				t.Errorf("Authorization %q", token)
			}
		}
		if !strings.Contains(r.log.String(), "gives a new token") || strings.Contains(r.log.String(), "s3cret") {
			t.Error("the log lacks the new token's arrival, or holds a token")
		}
	})
}

// The agent kills an executor that is not back within exactly that time.
func TestE6DelayIsAlwaysBelowTheAgentsLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(0, int64(15*time.Second)).Draw(t, "limit"))
		delay := againDelay(limit)
		if delay < 0 || (limit > 0 && delay >= limit) {
			t.Fatalf("delay %s with a limit of %s", delay, limit)
		}
	})
	spread := map[time.Duration]bool{}
	for range 1000 {
		spread[againDelay(2*time.Second)/(100*time.Millisecond)] = true
	}
	if len(spread) < 14 {
		t.Errorf("delays fall into %d tenths of a second only; they must not come all at once", len(spread))
	}
}

// TestHeartbeatsAreAnswered: an agent that sends heartbeats gets as many; one that
// does not, gets none.
func TestHeartbeatsAreAnswered(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		beats := func() int {
			r.agent.mu.Lock()
			defer r.agent.mu.Unlock()
			return r.agent.heartbeats
		}
		r.pass(2 * time.Hour)
		if n := beats(); n != 0 {
			t.Errorf("%d heartbeats to an agent that may not know them", n)
		}
		for i := range 3 {
			r.agent.send(&executor.Event{Type: executor.Event_HEARTBEAT})
			r.pass(30 * time.Minute)
			if n := beats(); n != i+1 {
				t.Errorf("%d heartbeats, want %d", n, i+1)
			}
		}
		if !r.running() {
			t.Error("the executor ended")
		}
	})
}
