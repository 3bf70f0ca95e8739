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
			err := j.Exclusive(t.Context(), "a/b", func() error {
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
	err := o.Exclusive(t.Context(), "a", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		return j.Exclusive(ctx, "a", func() error { t.Error("entered twice"); return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := j.Exclusive(t.Context(), "b", func() error { return errClosed }); !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
}
