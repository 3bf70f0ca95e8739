package local

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"tandem/scheduler"
)

// schedulerServer is the scheduler in this process.
type schedulerServer struct {
	s      *scheduler.Scheduler
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// startScheduler starts the scheduler; it runs until stop, whatever becomes of ctx.
func (s *stack) startScheduler(ctx context.Context) (*schedulerServer, error) {
	sched, err := scheduler.New(scheduler.Options{
		Masters:         s.master.URL(),
		DataDir:         s.dir.join("scheduler"),
		Listen:          s.o.Listen,
		User:            account(),
		ExecutorCommand: "exec " + shellQuote(s.bin.executor),
		// On one machine an agent is back within moments or not at all.
		ReplaceUnreachable: 10 * time.Second,
		Logger:             s.log.With("part", "scheduler"),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &schedulerServer{s: sched, cancel: cancel, done: make(chan struct{})}
	go func() {
		p.err = sched.Run(ctx)
		if ctx.Err() == nil {
			s.fail(fmt.Errorf("the scheduler ended by itself: %w", cmpOr(p.err, errors.New("no reason given"))))
		}
		cancel()
		close(p.done)
	}()
	return p, nil
}

// suspend ends all that the scheduler runs; what is declared stays declared.
func (p *schedulerServer) suspend(ctx context.Context, progress func(left int)) error {
	ctx, done := context.WithTimeout(ctx, suspendTimeout)
	defer done()
	go func() {
		// A scheduler that has failed answers no more.
		select {
		case <-p.done:
			done()
		case <-ctx.Done():
		}
	}()
	return p.s.Suspend(ctx, progress)
}

// stop ends the scheduler; what it runs goes on.
func (p *schedulerServer) stop(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, schedulerTimeout)
	defer done()
	p.cancel()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("the scheduler did not end within %s", schedulerTimeout)
	}
}

// account is the user that executors run as: the one that runs the stack.
func account() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// shellQuote makes one word of text for /bin/sh.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
