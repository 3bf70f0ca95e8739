package restart

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	p := Policy{Kind: OnFailure, Interval: 5 * time.Second, Backoff: 10 * time.Second, MaxTimes: 4}
	cases := []struct {
		name     string
		policy   Policy
		cause    Cause
		attempts int
		ran      time.Duration
		want     Decision
	}{
		{"first attempt waits the interval", p, Failed, 0, 0, Decision{Restart: true, Delay: 5 * time.Second, Attempts: 1}},
		{"second adds one backoff", p, Failed, 1, 0, Decision{Restart: true, Delay: 15 * time.Second, Attempts: 2}},
		{"third adds two", p, Failed, 2, 0, Decision{Restart: true, Delay: 25 * time.Second, Attempts: 3}},
		{"limit reached", p, Failed, 4, 0, Decision{Attempts: 4}},
		{"half an hour of running forgets", p, Failed, 4, ResetAfter, Decision{Restart: true, Delay: 5 * time.Second, Attempts: 1}},
		{"a second less does not", p, Failed, 4, ResetAfter - time.Second, Decision{Attempts: 4}},
		{"on failure lets finished be", p, Finished, 0, 0, Decision{}},
		{"empty kind is on failure", Policy{}, Finished, 0, 0, Decision{}},
		{"empty kind restarts failures", Policy{}, Failed, 7, 0, Decision{Restart: true, Attempts: 8}},
		{"always restarts finished", Policy{Kind: Always}, Finished, 0, 0, Decision{Restart: true, Attempts: 1}},
		{"never", Policy{Kind: Never}, Failed, 0, 0, Decision{}},
		{"never, lost", Policy{Kind: Never}, Lost, 0, 0, Decision{}},
		{"lost costs no attempt and no delay", p, Lost, 4, 0, Decision{Restart: true, Attempts: 4}},
		{"refused waits at least ten seconds", Policy{}, Invalid, 0, 0, Decision{Restart: true, Delay: invalidFloor, Attempts: 1}},
		{"negative delays count as none", Policy{Interval: -5, Backoff: -5}, Failed, 3, 0, Decision{Restart: true, Attempts: 4}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := c.policy.Decide(c.cause, c.attempts, c.ran)
			if !got.Restart && got.Reason == "" {
				t.Error("a refusal gives no reason")
			}
			got.Reason = ""
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestDelayNeverOverflows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Interval: time.Duration(rapid.Int64().Draw(t, "interval")),
			Backoff:  time.Duration(rapid.Int64().Draw(t, "backoff")),
		}
		k := rapid.IntRange(0, 1<<40).Draw(t, "k")
		d, next := p.delay(k), p.delay(k+1)
		if d < 0 || d > MaxDelay || next < d {
			t.Fatalf("delay(%d) = %v, delay(%d) = %v", k, d, k+1, next)
		}
	})
}
