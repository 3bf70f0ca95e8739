package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tandem/cmd/tandem/term"
)

// stopTimeout bounds an orderly stop: tasks have grace periods of their own,
// after which they are killed, so this is only for what hangs.
const stopTimeout = 5 * time.Minute

// stop ends what runs, in an order in which nothing can start anew: the
// scheduler, then the agents with their executors, the master, the daemon. A
// second signal on signals cuts it short; the next start then cleans up.
func (s *stack) stop(signals <-chan os.Signal, errOut *term.Output) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	forced := make(chan struct{})
	go func() {
		select {
		case <-signals:
			close(forced)
			cancel()
		case <-ctx.Done():
		}
	}()
	progress := term.NewProgress(errOut)
	defer progress.Done()
	stopped := make(chan error, 1)
	go func() { stopped <- s.stopParts(ctx, progress) }()
	select {
	case err := <-stopped:
		if err == nil && !s.o.Keep {
			err = s.dir.writeState(state{Clean: true, Machines: s.machines, Master: s.o.MasterPort})
		}
		if err != nil {
			return fmt.Errorf("the stack did not stop cleanly: %w; start it again on %s to clean up", err, s.dir.path)
		}
		progress.Line("stopped%s", map[bool]string{true: "; what it runs goes on", false: ""}[s.o.Keep])
		return nil
	case <-forced:
		return fmt.Errorf("stopped by force; start it again on %s to clean up what is left", s.dir.path)
	}
}

// takeFirst takes the signal away that ended the run's context. Whoever else is
// told of a signal may be told before, so it may still be on its way; a context
// that ended for another reason has none.
func takeFirst(signals <-chan os.Signal) {
	select {
	case <-signals:
	case <-time.After(time.Second):
	}
}

func (s *stack) stopParts(ctx context.Context, progress *term.Progress) error {
	var errs []error
	if s.scheduler != nil && !s.o.Keep {
		progress.Update("stopping what runs")
		err := s.scheduler.suspend(ctx, func(left int) {
			if left > 0 {
				progress.Update("stopping what runs: %d taskgroups left", left)
			}
		})
		if err != nil {
			// The agents shut down what is left.
			s.log.Warn("not everything was stopped in an orderly way", "error", err)
		}
	}
	if s.scheduler != nil {
		progress.Update("stopping the scheduler")
		errs = append(errs, s.scheduler.stop(ctx))
	}
	progress.Update("stopping %d agents", len(s.agents))
	errs = append(errs, s.stopMesos(ctx))
	if s.daemon != nil && !s.o.Keep {
		progress.Update("stopping %s", processdBinary)
		errs = append(errs, s.daemon.stop(ctx))
		removeRuntimeDir(s.run)
	}
	return errors.Join(errs...)
}
