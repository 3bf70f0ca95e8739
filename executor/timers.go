package executor

import "time"

// timers are the deadlines of one event loop. Nothing here is safe for
// concurrent use: the loop alone calls it, and the functions run in the loop.
type timers struct {
	set map[*timer]struct{}
}

// timer is one deadline; it is gone once it has fired or was stopped.
type timer struct {
	at time.Time
	do func()
}

func newTimers() *timers { return &timers{set: map[*timer]struct{}{}} }

// after arranges for do to be called by fire once d has passed.
func (ts *timers) after(d time.Duration, do func()) *timer {
	t := &timer{at: time.Now().Add(d), do: do}
	ts.set[t] = struct{}{}
	return t
}

// stop forgets t, which may be nil or gone.
func (ts *timers) stop(t *timer) { delete(ts.set, t) }

// next returns the time until the earliest deadline; false when there is none.
func (ts *timers) next() (time.Duration, bool) {
	var earliest time.Time
	for t := range ts.set {
		if earliest.IsZero() || t.at.Before(earliest) {
			earliest = t.at
		}
	}
	if earliest.IsZero() {
		return 0, false
	}
	return max(0, time.Until(earliest)), true
}

// fire runs what is due, the earliest first. What a function adds waits for the next call.
func (ts *timers) fire() {
	now := time.Now()
	var due []*timer
	for t := range ts.set {
		if !t.at.After(now) {
			due = append(due, t)
		}
	}
	for len(due) > 0 {
		first := 0
		for i := range due {
			if due[i].at.Before(due[first].at) {
				first = i
			}
		}
		t := due[first]
		due = append(due[:first], due[first+1:]...)
		if _, still := ts.set[t]; still {
			delete(ts.set, t)
			t.do()
		}
	}
}
