package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/internal/term"
	"tandem/scheduler/wire"
)

const (
	// waitInterval is how often --wait looks.
	waitInterval = 250 * time.Millisecond
	// waitTimeout is the default of --timeout.
	waitTimeout = 5 * time.Minute
	// patience is how long the scheduler may be away while somebody waits.
	patience = 15 * time.Second
)

// waiting is the pair of flags --wait and --timeout.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) flags(cmd *cobra.Command, until string) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait until "+until)
	cmd.Flags().DurationVar(&w.timeout, "timeout", waitTimeout, "how long --wait waits")
}

func (w *waiting) check() error {
	if w.timeout <= 0 {
		return exit.Errorf(exit.Usage, "--timeout %s: give a positive duration, such as 30s or 5m", w.timeout)
	}
	return nil
}

// step is one look at what is waited for: done, or what is missing yet.
type step struct {
	done bool
	// text is one line on how far it is; details are what to say when time is up.
	text    string
	details []string
}

// until looks until look says done, with a progress display on the error stream.
func (w *waiting) until(ctx context.Context, a *app, look func(context.Context) (step, error)) error {
	progress := term.NewProgress(a.err)
	defer progress.Done()
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var last step
	var lostAt time.Time
	for {
		s, err := look(ctx)
		switch {
		case err == nil && s.done:
			return nil
		case err == nil:
			last, lostAt = s, time.Time{}
			progress.Update("%s", s.text)
		case ctx.Err() != nil:
			// What counts is said below.
		case exit.Of(err) != exit.Unreachable:
			return err
		default:
			// A scheduler that restarts is no reason to give up at once.
			if lostAt.IsZero() {
				lostAt = time.Now()
			}
			if time.Since(lostAt) > patience {
				return err
			}
			progress.Update("the scheduler does not answer; trying again")
		}
		select {
		case <-ctx.Done():
			if ctx.Err() == context.Canceled {
				return ctx.Err()
			}
			message := fmt.Sprintf("not reached within %s: %s", w.timeout, last.text)
			return exit.Errorf(exit.TimedOut, "%s", strings.Join(append([]string{message}, last.details...), "\n  "))
		case <-time.After(waitInterval):
		}
	}
}

// settled looks whether workloads run as declared. replicas below 0 means what
// is declared.
func settled(b backend, refs []api.Ref) func(context.Context) (step, error) {
	return func(ctx context.Context) (step, error) {
		objects, err := index(ctx, b, refs)
		if err != nil {
			return step{}, err
		}
		s := step{done: true}
		var texts []string
		var message string
		var unsettled []api.Ref
		for _, ref := range refs {
			o, found := objects[ref]
			if !found {
				return s, exit.Errorf(exit.NotFound, "%s is not there any more: somebody has deleted it", ref)
			}
			st := o.Status
			if st == nil || st.Settled {
				continue
			}
			if st.Failed {
				return s, exit.Errorf(exit.Failure, "%s failed: %s", ref, st.Message)
			}
			s.done = false
			unsettled = append(unsettled, ref)
			texts = append(texts, fmt.Sprintf("%s %d/%d ready", short(ref), st.Ready, st.Desired))
			message = st.Message
		}
		s.text = strings.Join(texts, ", ")
		if len(texts) == 1 && message != "" {
			s.text += " (" + term.Clean(message) + ")"
		}
		if !s.done {
			groups, err := b.Taskgroups(ctx, "")
			if err != nil {
				return s, err
			}
			s.details = reasons(groups, unsettled)
		}
		return s, nil
	}
}

// emptied looks whether no taskgroup of the workloads is left.
func emptied(b backend, refs []api.Ref) func(context.Context) (step, error) {
	return func(ctx context.Context) (step, error) {
		groups, err := b.Taskgroups(ctx, "")
		if err != nil {
			return step{}, err
		}
		s := step{done: true}
		var left []string
		for _, g := range groups {
			for _, ref := range refs {
				if g.Owner == ref {
					s.done = false
					left = append(left, g.Name)
					s.details = append(s.details, fmt.Sprintf("%s/%s is %s on %s", g.Namespace, g.Name, stateCell(g.State).Text, g.Agent))
				}
			}
		}
		s.text = fmt.Sprintf("%s left: %s", count(len(left), "taskgroup"), strings.Join(left, ", "))
		return s, nil
	}
}

// index fetches objects by reference, with one request for each kind and namespace.
func index(ctx context.Context, b backend, refs []api.Ref) (map[api.Ref]wire.Object, error) {
	out := map[api.Ref]wire.Object{}
	asked := map[[2]string]bool{}
	for _, ref := range refs {
		key := [2]string{string(ref.Kind), ref.Namespace}
		if asked[key] {
			continue
		}
		asked[key] = true
		objects, err := b.Objects(ctx, ref.Kind, ref.Namespace)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			out[o.Ref] = o
		}
	}
	return out, nil
}

// reasons says why taskgroups of the workloads do not run.
func reasons(groups []wire.Taskgroup, refs []api.Ref) []string {
	var out []string
	for _, g := range groups {
		for _, ref := range refs {
			if g.Owner != ref || g.Ready {
				continue
			}
			text := why(g)
			if text == "" {
				text = "no message yet"
			}
			out = append(out, fmt.Sprintf("%s/%s is %s: %s", g.Namespace, g.Name, stateCell(g.State).Text, term.Clean(text)))
		}
	}
	return out
}

// short renders a reference without its namespace, for one-line displays.
func short(ref api.Ref) string { return string(ref.Kind) + "/" + ref.Name }

// workloads are the references that run taskgroups.
func workloads(refs []api.Ref) []api.Ref {
	var out []api.Ref
	for _, ref := range refs {
		if k, err := lookupKind(string(ref.Kind)); err == nil && k.workload {
			out = append(out, ref)
		}
	}
	return out
}
