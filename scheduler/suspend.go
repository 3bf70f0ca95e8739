package scheduler

import (
	"context"
	"fmt"
	"time"

	"tandem/api"
)

// suspendLook is how often Suspend looks what is left.
const suspendLook = 50 * time.Millisecond

// Suspend ends every taskgroup and places none any more, as long as this
// scheduler lives. What is declared stays declared: the next scheduler on the
// same store starts it again. It returns once nothing runs; progress, which may
// be nil, is told how many taskgroups are left. Run must be running.
//
// It is for a stack that is stopped as a whole. A scheduler that ends by itself
// leaves everything running.
func (s *Scheduler) Suspend(ctx context.Context, progress func(left int)) error {
	err := s.loop.call(ctx, func() error {
		s.loop.suspended = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("suspend: %w", err)
	}
	tick := time.NewTicker(suspendLook)
	defer tick.Stop()
	for {
		left := 0
		err := s.loop.call(ctx, func() error {
			for ref, slots := range s.loop.slots {
				s.loop.touched[ref] = true
				for _, sl := range slots {
					// Of what is unreachable nobody knows when it ends.
					if sl.live() && sl.Group.Unreachable.IsZero() {
						left++
					}
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("suspend: %w", err)
		}
		if progress != nil {
			progress(left)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("suspend: %d taskgroups still run: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

// decideSuspended ends what runs of a workload. What has come to its end by its
// policy stays as it is, so that it is not done again later.
func (l *loop) decideSuspended(o *object, ref api.Ref, now time.Time) {
	for _, sl := range l.sortedSlots(ref) {
		if sl.Group != nil && !sl.Done {
			l.decideSlot(o, sl, false, now)
		}
	}
	if len(l.slots[ref]) == 0 {
		delete(l.slots, ref)
	}
}
