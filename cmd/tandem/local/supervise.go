package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// How often a daemon that ends by itself is started again before that is taken
// for a failure of the stack.
const (
	maxRestarts   = 3
	restartWindow = time.Minute
)

// supervisor keeps the process daemon running, as a service manager does on a
// real machine: its processes outlive it and are adopted by the next one.
type supervisor struct {
	start func(context.Context) (*daemon, error)
	fail  func(error)

	mu       sync.Mutex
	current  *daemon
	stopping bool
	done     chan struct{}
}

// supervise starts the daemon and watches it until stop. fail is told when it
// cannot be kept running.
func supervise(ctx context.Context, start func(context.Context) (*daemon, error), fail func(error)) (*supervisor, error) {
	first, err := start(ctx)
	if err != nil {
		return nil, err
	}
	s := &supervisor{start: start, fail: fail, current: first, done: make(chan struct{})}
	go s.watch(context.WithoutCancel(ctx))
	return s, nil
}

func (s *supervisor) watch(ctx context.Context) {
	defer close(s.done)
	var ends []time.Time
	for {
		d := s.daemon()
		<-d.done
		now := time.Now()
		ends = append(ends, now)
		for now.Sub(ends[0]) > restartWindow {
			ends = ends[1:]
		}
		ended := fmt.Errorf("%s ended by itself: %w; its log is %s", processdBinary, cmpOr(d.err, errors.New("exit code 0")), d.log)
		if len(ends) > maxRestarts {
			s.fail(ended)
			return
		}
		if err := s.again(ctx); err != nil {
			s.fail(errors.Join(ended, err))
			return
		}
		if s.daemon() == d {
			return // the end was wanted
		}
	}
}

// again starts the next daemon, unless the end of the last one was wanted.
func (s *supervisor) again(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil
	}
	next, err := s.start(ctx)
	if err == nil {
		s.current = next
	}
	return err
}

func (s *supervisor) daemon() *daemon {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// release stops watching and leaves the daemon alone.
func (s *supervisor) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
}

// stop ends the daemon.
func (s *supervisor) stop(ctx context.Context) error {
	s.release()
	err := s.daemon().stop(ctx)
	<-s.done
	return err
}
