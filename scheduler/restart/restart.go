// Package restart decides whether and when a taskgroup that ended is started
// again. It is for the scheduler's controller; it is pure and must never look
// at a clock or at a store: whoever calls it keeps the counter durably.
package restart

import "time"

// ResetAfter is how long a taskgroup must have run without a break for its
// attempts to be forgotten.
const ResetAfter = 30 * time.Minute

// MaxDelay bounds the delay, so that a large backoff cannot overflow or park a
// taskgroup for ever.
const MaxDelay = 24 * time.Hour

// Kind is the policy's name as artifacts spell it.
type Kind string

// The policies of an artifact's restartPolicy.policy.
const (
	Never     Kind = "Never"
	OnFailure Kind = "OnFailure"
	Always    Kind = "Always"
)

// Policy says when a taskgroup is started again.
type Policy struct {
	// Kind is Never, OnFailure or Always; empty means OnFailure.
	Kind Kind
	// Interval is the delay before the first attempt; Backoff is added for each further one.
	Interval, Backoff time.Duration
	// MaxTimes limits the attempts; 0 means no limit.
	MaxTimes int
}

// Cause is why a taskgroup is not running any more.
type Cause int

// The causes. Invalid is a taskgroup that Mesos or its executor refused; Lost
// is one whose agent is gone or has been unreachable for too long.
const (
	Finished Cause = iota
	Failed
	Invalid
	Lost
)

// invalidFloor keeps a specification that is refused at once from being sent
// again several times a second when its policy has no delay.
const invalidFloor = 10 * time.Second

// Decision is what comes of an end.
type Decision struct {
	// Restart tells whether the taskgroup is started again, after Delay.
	Restart bool
	Delay   time.Duration
	// Attempts is the counter to keep: the attempts made, this one included.
	Attempts int
	// Reason says in a few words why, for people.
	Reason string
}

// Decide applies the policy to an end. attempts is the counter kept so far, and
// ran is how long the taskgroup was running without a break before it ended.
//
// A lost taskgroup is no fault of the application: it is replaced without a
// delay and without counting an attempt, unless the policy is Never.
func (p Policy) Decide(cause Cause, attempts int, ran time.Duration) Decision {
	if ran >= ResetAfter {
		attempts = 0
	}
	keep := Decision{Attempts: attempts}
	if p.Kind == Never {
		keep.Reason = "restart policy is Never"
		return keep
	}
	if cause == Lost {
		return Decision{Restart: true, Attempts: attempts, Reason: "its agent was lost"}
	}
	if cause == Finished && p.Kind != Always {
		keep.Reason = "it finished, and the restart policy is OnFailure"
		return keep
	}
	if p.MaxTimes > 0 && attempts >= p.MaxTimes {
		keep.Reason = "the limit of restarts (maxtimes) is reached"
		return keep
	}
	d := p.delay(attempts)
	if cause == Invalid && d < invalidFloor {
		d = invalidFloor
	}
	return Decision{Restart: true, Delay: d, Attempts: attempts + 1, Reason: reasons[cause]}
}

var reasons = map[Cause]string{
	Finished: "it finished, and the restart policy is Always",
	Failed:   "it failed",
	Invalid:  "it was refused",
}

// delay is interval + k*backoff, within [0, MaxDelay], without overflow.
func (p Policy) delay(k int) time.Duration {
	d := max(p.Interval, 0)
	b := max(p.Backoff, 0)
	if d >= MaxDelay || (b > 0 && k > 0 && b >= (MaxDelay-d)/time.Duration(k)) {
		return MaxDelay
	}
	return d + time.Duration(k)*b
}
