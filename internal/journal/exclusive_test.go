package journal

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestExclusiveLetsInOneAtATime(t *testing.T) {
	t.Parallel()
	j := open(t)
	var in, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := j.Exclusive(t.Context(), "a/b", func(time.Time) error {
				if n := in.Add(1); n > most.Load() {
					most.Store(n)
				}
				in.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

func TestExclusiveWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	j := open(t)
	o := own(t, j, "o")
	err := o.Exclusive(t.Context(), "a", func(time.Time) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		return j.Exclusive(ctx, "a", func(time.Time) error { t.Error("entered twice"); return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := j.Exclusive(t.Context(), "b", func(time.Time) error { return errClosed }); !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
}

func TestExclusiveTellsWhenTheLastOneSucceeded(t *testing.T) {
	t.Parallel()
	j := open(t)
	var seen []time.Time
	begin := time.Now()
	for _, result := range []error{errClosed, nil, errClosed, nil} {
		_ = j.Exclusive(t.Context(), "a", func(last time.Time) error {
			seen = append(seen, last)
			return result
		})
	}
	if !seen[0].IsZero() || !seen[1].IsZero() || seen[2].Before(begin) || !seen[3].Equal(seen[2]) {
		t.Errorf("seen %v", seen)
	}
}
