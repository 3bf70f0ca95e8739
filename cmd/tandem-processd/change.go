package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// tasksNote is said by each command that changes tasks of executors.
const tasksNote = "\n\nA task of an executor stays the executor's: it hears of each change, and its restart policy decides."

func ended(s *protocol.Status) bool {
	return s.State == protocol.StateEnded || s.State == protocol.StateDeleted
}

// follow waits until a status is as it should be. A task that has been deleted
// meanwhile counts as ended.
func (a *asker) follow(ctx context.Context, d *client.Client, s protocol.Status, ok func(*protocol.Status) bool) (protocol.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	const step = 20 * time.Second
	for a.wait > 0 && !ok(&s) {
		next, err := d.Poll(ctx, s.ID, s.Version, step)
		switch {
		case client.IsCode(err, protocol.CodeNotFound):
			s.State, s.Phase = protocol.StateDeleted, protocol.PhaseStopped
			return s, nil
		case errors.Is(err, context.DeadlineExceeded):
			return s, fmt.Errorf("task %q is still %s (%s) after %v; what was asked for goes on", s.ID, s.Phase, s.State, a.wait)
		case err != nil:
			return s, err
		}
		s = next
	}
	return s, nil
}

// each asks for something of each task, waits for all, and shows them.
func (a *asker) each(ctx context.Context, d *client.Client, args []string, ask func(id string) (protocol.Status, error), ok func(*protocol.Status) bool) error {
	var asked []protocol.Status
	var errs []error
	for _, id := range args {
		s, err := ask(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		asked = append(asked, s)
	}
	for i := range asked {
		s, err := a.follow(ctx, d, asked[i], ok)
		asked[i] = s
		errs = append(errs, err)
	}
	if len(asked) > 0 {
		errs = append(errs, a.show(len(args) > 1, asked...))
	}
	return errors.Join(errs...)
}

// cameUp tells whether a start has come to its result.
func cameUp(s *protocol.Status) bool {
	return s.State == protocol.StateRunning || ended(s)
}

// failed is the error of a task that should run.
func failed(s *protocol.Status) error {
	if s.Phase == protocol.PhaseFailed || s.Failure != "" {
		return fmt.Errorf("task %q has %s: %s", s.ID, s.Phase, outcome(s))
	}
	return nil
}

// startReady starts a task, unless it has ended already: to the daemon that is a start that
// was asked for twice, to people one that did not happen.
func startReady(ctx context.Context, d *client.Client, id string) (protocol.Status, error) {
	s, err := d.Status(ctx, id)
	if err == nil && ended(&s) {
		err = fmt.Errorf("task %q has ended and is not started again; delete it and create it anew", id)
	}
	if err != nil {
		return s, err
	}
	return d.Start(ctx, id, 0)
}

func (a *asker) start() *cobra.Command {
	c := a.runs(&cobra.Command{
		Use: "start ID...", Short: "Start tasks that are ready", Args: ids(1, 0),
		Long: `Starts tasks that are ready, and waits until they run. One that was started already is not started again: restart
does that while it runs; one that has ended is deleted and created anew.` + tasksNote,
		Example:           "  tandem-processd start ID\n  tandem-processd start ID --wait 0s",
		ValidArgsFunction: a.completeIDs(true),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		var bad []error
		err := a.each(ctx, d, args, func(id string) (protocol.Status, error) { return startReady(ctx, d, id) }, func(s *protocol.Status) bool {
			if cameUp(s) {
				bad = append(bad, failed(s))
			}
			return cameUp(s)
		})
		return errors.Join(append(bad, err)...)
	})
	a.outputFlag(c)
	a.waitFlag(c, "until they run")
	return c
}

func (a *asker) stop() *cobra.Command {
	var grace time.Duration
	c := a.runs(&cobra.Command{
		Use: "stop ID...", Short: "Stop tasks: their stop command or SIGTERM, after the grace SIGKILL", Args: ids(1, 0),
		Long: `Stops tasks with all that they have forked, and waits until nothing of them runs: their stop command, then
SIGTERM, and after the grace SIGKILL. A later stop can only bring the end nearer.` + tasksNote,
		Example:           "  tandem-processd stop ID\n  tandem-processd stop ID --grace 1m\n  tandem-processd stop ID --grace 0s   # SIGKILL at once",
		ValidArgsFunction: a.completeIDs(true),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		return a.each(ctx, d, args, func(id string) (protocol.Status, error) { return d.Stop(ctx, id, grace) }, ended)
	})
	graceFlag(c, &grace)
	a.outputFlag(c)
	a.waitFlag(c, "until nothing of them runs")
	return c
}

func graceFlag(c *cobra.Command, grace *time.Duration) {
	*grace = 10 * time.Second
	c.Flags().Var((*graceValue)(grace), "grace", "time until SIGKILL")
}

// graceValue is a duration that is not negative: a slip of the finger must not be a SIGKILL at once.
type graceValue time.Duration

func (g *graceValue) String() string { return time.Duration(*g).String() }
func (g *graceValue) Type() string   { return "duration" }

func (g *graceValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("want 0s or more")
	}
	*g = graceValue(d)
	return err
}

func (a *asker) restart() *cobra.Command {
	var grace time.Duration
	c := a.runs(&cobra.Command{
		Use: "restart ID", Short: "Stop a running task and start it anew in the same directories", Args: ids(1, 1),
		Long: `Stops a running task as stop does, starts it anew with the same specification in the same directories, and
waits until it runs.` + tasksNote,
		Example:           "  tandem-processd restart ID\n  tandem-processd restart ID --grace 30s -o json",
		ValidArgsFunction: a.completeIDs(false),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		before, err := d.Status(ctx, args[0])
		if err != nil {
			return err
		}
		s, err := d.Restart(ctx, args[0], grace)
		if err != nil {
			return err
		}
		s, err = a.follow(ctx, d, s, func(s *protocol.Status) bool {
			return ended(s) || s.Restarts > before.Restarts && s.State == protocol.StateRunning
		})
		return errors.Join(err, a.show(false, s), failed(&s))
	})
	graceFlag(c, &grace)
	a.outputFlag(c)
	a.waitFlag(c, "until it runs again")
	return c
}

func (a *asker) reload() *cobra.Command {
	c := a.runs(&cobra.Command{
		Use: "reload ID", Short: "Run the reload command of a running task", Args: ids(1, 1),
		Long:              "Runs the reload command of a running task, waits for its end, and fails when it does.",
		Example:           "  tandem-processd reload ID",
		ValidArgsFunction: a.completeIDs(false),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		s, err := d.Reload(ctx, args[0])
		if err != nil {
			return err
		}
		s, err = a.follow(ctx, d, s, func(s *protocol.Status) bool { return ended(s) || s.Reload != nil && !s.Reload.Running })
		if err == nil && s.Reload != nil && s.Reload.Failure != "" {
			err = fmt.Errorf("task %q: %s", s.ID, s.Reload.Failure)
		}
		return errors.Join(err, a.show(false, s))
	})
	a.outputFlag(c)
	a.waitFlag(c, "for the end of the command")
	return c
}

func (a *asker) signal() *cobra.Command {
	complete := a.completeIDs(false)
	c := a.runs(&cobra.Command{
		Use: "signal ID SIGNAL", Short: "Send a signal to the main process of a task", Args: ids(2, 2),
		Long:    "Sends a signal to the main process of a task. SIGNAL is a name such as SIGHUP or HUP, or a number.",
		Example: "  tandem-processd signal ID HUP",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{"HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "STOP", "KILL"}, cobra.ShellCompDirectiveNoFileComp
			}
			return complete(cmd, args, to)
		},
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		sig, err := api.SignalNumber(args[1])
		if err != nil {
			return usageError{err}
		}
		return d.Signal(ctx, args[0], sig)
	})
	return c
}

func (a *asker) remove() *cobra.Command {
	var stop bool
	var grace time.Duration
	c := a.runs(&cobra.Command{
		Use: "delete ID...", Aliases: []string{"rm"}, Short: "Forget tasks that do not run, with their files and control groups", Args: ids(1, 0),
		Long: `Forgets tasks that do not run, with the files that were put in place for them and their control groups. What they
wrote stays. One that runs is refused, unless --stop stops it first. One that is unknown is no error.` + tasksNote,
		Example:           "  tandem-processd delete ID\n  tandem-processd delete ID --stop --grace 30s",
		ValidArgsFunction: a.completeIDs(true),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		var errs []error
		for _, id := range args {
			if stop {
				s, err := d.Stop(ctx, id, grace)
				if err == nil {
					_, err = a.follow(ctx, d, s, ended)
				}
				if err != nil && !client.IsCode(err, protocol.CodeNotFound) {
					errs = append(errs, err)
					continue
				}
			}
			errs = append(errs, d.Delete(ctx, id))
		}
		return errors.Join(errs...)
	})
	c.Flags().BoolVar(&stop, "stop", false, "stop those that run")
	graceFlag(c, &grace)
	a.waitFlag(c, "for the end of what is stopped")
	return c
}
