package health

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tandem/api"
)

// loop is an event loop with a monitor and a clock that the test controls.
type loop struct {
	*Monitor
	cancel context.CancelFunc
	inbox  chan Result
	told   []Change
}

func inBubble(t *testing.T, body func(l *loop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &loop{cancel: cancel, inbox: make(chan Result)}
		l.Monitor = NewMonitor(Options{
			Context: ctx, Go: func(f func()) { go f() },
			Post: func(r Result) bool {
				select {
				case l.inbox <- r:
					return true
				case <-ctx.Done():
					return false
				}
			},
		})
		body(l)
		cancel()
		synctest.Wait()
	})
}

// run lets the loop go on for a time.
func (l *loop) run(d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		var wake <-chan time.Time
		if wait, ok := l.Next(); ok {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			wake = timer.C
		}
		select {
		case <-end.C:
			return
		case <-wake:
			l.Run()
		case r := <-l.inbox:
			if c, ok := l.Take(r); ok {
				l.told = append(l.told, c)
			}
		}
	}
}

// scripted is a target whose command does what a test says.
func scripted(f func(ctx context.Context, n int) (CommandResult, error)) Target {
	var n atomic.Int32
	return Target{Exec: func(ctx context.Context, _ Command) (CommandResult, error) {
		return f(ctx, int(n.Add(1)))
	}}
}

func command(c Check) []Check {
	c.Type = api.CheckCommand
	return []Check{c}
}

func TestChecksAreMadeWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(l *loop) {
		start := time.Now()
		var at []string
		l.Watch("t", command(Check{Delay: 5 * time.Second, Interval: 10 * time.Second, Timeout: 4 * time.Second}), scripted(func(ctx context.Context, n int) (CommandResult, error) {
			at = append(at, time.Since(start).String())
			switch n {
			case 2: // takes its time
				time.Sleep(3 * time.Second)
			case 3: // takes too long
				<-ctx.Done()
				return CommandResult{Started: true}, ctx.Err()
			}
			return CommandResult{Started: true}, nil
		}))
		l.run(time.Minute)
		if got := fmt.Sprint(at); got != "[5s 15s 28s 42s 52s]" {
			t.Errorf("checks at %s", got)
		}
		if len(l.told) != 3 || l.told[1].Message != "health check COMMAND failed: no answer within 4s" {
			t.Errorf("told %+v", l.told)
		}
		if r := l.Report("t"); len(r) != 1 || !*r[0].Healthy || !*l.Health("t") || l.Observed("t") != nil {
			t.Errorf("report %+v", r)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(l *loop) {
		var now, most, made atomic.Int32
		slow := scripted(func(context.Context, int) (CommandResult, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			made.Add(1)
			return CommandResult{}, nil
		})
		const tasks = 3 * MostWorkers
		for i := range tasks {
			l.Watch(strconv.Itoa(i), command(Check{Interval: time.Hour, Timeout: time.Minute}), slow)
		}
		l.run(10 * time.Second)
		if most.Load() > MostWorkers || most.Load() < MostWorkers/2 || made.Load() != tasks || int(most.Load()) != l.workers || l.busy != 0 {
			t.Errorf("%d at once, %d made, %d workers, %d busy", most.Load(), made.Load(), l.workers, l.busy)
		}
	})
}

// All of them hang: the workers become as many as there may be, and no more.
func TestHangingChecksGetWorkers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(l *loop) {
		for i := range 2 * MostWorkers {
			l.Watch(strconv.Itoa(i), command(Check{Interval: time.Hour, Timeout: time.Hour}), scripted(func(ctx context.Context, _ int) (CommandResult, error) {
				<-ctx.Done()
				return CommandResult{Started: true}, ctx.Err()
			}))
		}
		l.run(2 * time.Second)
		if l.workers != MostWorkers || l.busy != MostWorkers {
			t.Errorf("%d workers, %d busy", l.workers, l.busy)
		}
	})
}

func TestOneWorkerIsEnoughForOneCheckAtATime(t *testing.T) {
	t.Parallel()
	inBubble(t, func(l *loop) {
		for i := range 10 {
			l.Watch(strconv.Itoa(i), command(Check{Delay: time.Duration(i) * time.Second, Interval: time.Hour, Timeout: time.Second}),
				scripted(func(context.Context, int) (CommandResult, error) { return CommandResult{}, nil }))
		}
		l.run(time.Minute)
		if l.workers != 1 {
			t.Errorf("%d workers", l.workers)
		}
	})
}

func TestForgetEndsACheckUnderWay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(l *loop) {
		var ended atomic.Bool
		ns, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		target := scripted(func(ctx context.Context, _ int) (CommandResult, error) {
			<-ctx.Done()
			ended.Store(true)
			return CommandResult{Started: true}, ctx.Err()
		})
		target.Netns = func(context.Context) (*os.File, error) { return ns, nil }
		l.Watch("t", command(Check{Limit: 1, Interval: time.Hour, Timeout: time.Hour}), target)
		l.run(time.Second)
		if _, err := l.patients["t"].namespace(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Forget("t")
		l.Forget("t")
		l.Forget("nobody")
		l.run(time.Second)
		if !ended.Load() || len(l.told) > 0 || l.busy != 0 || l.Health("t") != nil {
			t.Errorf("ended %v, told %+v, busy %d", ended.Load(), l.told, l.busy)
		}
		if ns.Close() == nil {
			t.Error("the namespace was left open")
		}
		if _, due := l.Next(); due {
			t.Error("something is due")
		}
	})
}

func TestOneTaskDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, func(l *loop) {
		hang := scripted(func(ctx context.Context, _ int) (CommandResult, error) {
			<-ctx.Done()
			return CommandResult{Started: true}, ctx.Err()
		})
		var made atomic.Int32
		l.Watch("hangs", command(Check{Interval: time.Second, Timeout: time.Hour}), hang)
		l.Watch("works", command(Check{Interval: time.Second, Timeout: time.Second}), scripted(func(context.Context, int) (CommandResult, error) {
			made.Add(1)
			return CommandResult{}, nil
		}))
		l.run(9500 * time.Millisecond)
		if made.Load() != 10 {
			t.Errorf("%d checks in ten seconds", made.Load())
		}
	})
}
