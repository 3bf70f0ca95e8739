package local

import (
	"context"
	"errors"
)

// schedulerServer is the scheduler in this process.
type schedulerServer struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *stack) startScheduler(context.Context) (*schedulerServer, error) {
	return nil, errors.New("the scheduler is not part of this build")
}

// stop ends the scheduler; what it runs goes on.
func (p *schedulerServer) stop(ctx context.Context) error {
	p.cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.New("the scheduler did not end in time")
	}
}
