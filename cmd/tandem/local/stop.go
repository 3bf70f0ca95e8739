package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"tandem/internal/journal"
	"tandem/internal/term"
	"tandem/processdaemon/client"
)

// stopTimeout bounds an orderly stop: tasks have grace periods of their own,
// after which they are killed, so this is only for what hangs.
const stopTimeout = 5 * time.Minute

// cleanTimeout is what the daemon gets to clean up after dead executors; it
// gives a hanging container half a minute.
const cleanTimeout = 45 * time.Second

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

// count renders "1 agent", "2 agents".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
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
				progress.Update("stopping what runs: %s left", count(left, "taskgroup"))
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
	progress.Update("stopping %s", count(len(s.agents), "agent"))
	errs = append(errs, s.stopMesos(ctx))
	switch {
	case s.daemon == nil:
		removeRuntimeDir(s.run)
	case s.o.Keep:
		s.daemon.release()
	default:
		errs = append(errs, s.waitClean(ctx, progress))
		progress.Update("stopping %s", processdBinary)
		errs = append(errs, s.daemon.stop(ctx))
		removeRuntimeDir(s.run)
	}
	return errors.Join(errs...)
}

// waitClean waits until the daemon has cleaned up after executors that did not
// end by themselves: stopped now, it would leave what they ran.
func (s *stack) waitClean(ctx context.Context, progress *term.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	daemon := client.New(s.socket())
	defer daemon.Close()
	records, err := journal.Open(s.dir.join("tasks", "journal"))
	if err != nil {
		return fmt.Errorf("look for what is left: %w", err)
	}
	for {
		var left []string
		tasks, err := daemon.List(ctx, "")
		for i := range tasks {
			left = append(left, "process "+tasks[i].ID)
		}
		recs, recErr := records.Records()
		for i := range recs {
			if what := recs[i].Kind + " " + recs[i].ID; !slices.Contains(left, what) {
				left = append(left, what)
			}
		}
		err = errors.Join(err, recErr)
		if err == nil && len(left) == 0 {
			return nil
		}
		if len(left) > 0 {
			progress.Update("cleaning up: %s", strings.Join(left, ", "))
		}
		select {
		case <-s.daemon.done:
			return errors.New("nobody cleans up after what is left: the process daemon cannot be kept running")
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("what is left was not cleaned up within %s: %s", cleanTimeout, strings.Join(left, ", ")), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
