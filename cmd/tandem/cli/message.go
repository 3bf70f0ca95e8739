package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
)

func (a *app) signalCommand() *cobra.Command {
	var to recipients
	cmd := &cobra.Command{
		Use:   "signal (TASKGROUP | KIND/NAME) SIGNAL",
		Short: "Send a signal to running tasks",
		Long: `Sends a signal to the first process of a task: of a taskgroup, or of every taskgroup of a
workload. A taskgroup with several tasks needs --task. SIGNAL is a name such as SIGHUP or HUP,
or a number. To end a task for good, scale or delete its workload: after a signal that kills it,
the restart policy decides.`,
		Example: `  tandem signal web-0 HUP -n test
  tandem signal application/web USR1 -n test --task nginx -o json`,
		Args: exactArgs("TASKGROUP", "SIGNAL"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGWINCH", "SIGSTOP", "SIGCONT", "SIGKILL"}, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeLogs(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.message(cmd.Context(), &to, args[0], api.Message{Type: api.MessageSignal, Signal: args[1]}, func(outcome) string {
				return "signal " + args[1] + " sent"
			})
		},
	}
	to.flags(a, cmd)
	return cmd
}

func (a *app) resizeCommand() *cobra.Command {
	var to recipients
	var cpuRequest, memoryRequest, cpuLimit, memoryLimit float64
	var pidsLimit int64
	cmd := &cobra.Command{
		Use:   "resize (TASKGROUP | KIND/NAME)",
		Short: "Change cpu, memory and number of processes of running tasks",
		Long: `Changes what a running container or process may use, without a restart: of a taskgroup, or of
every taskgroup of a workload. A taskgroup with several tasks needs --task. What is not named stays
as it is. Requests cannot be raised above what Mesos has given to the taskgroup; limits can.

The change lasts as long as the taskgroup: the next one has what was applied. To keep it, change
the artifact and apply it.`,
		Example: `  tandem resize web-0 -n test --limit-cpu 2 --limit-memory 512
  tandem resize application/web -n test --task nginx --request-cpu 0.5 -o json`,
		Args:              exactArgs("TASKGROUP"),
		ValidArgsFunction: a.completeLogs,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := func(flag string, v *float64) *float64 {
				if !cmd.Flags().Changed(flag) {
					return nil
				}
				return v
			}
			m := api.Message{Type: api.MessageResources, Resources: &api.ResourceChange{
				Requests: api.ResourceAmounts{CPUs: given("request-cpu", &cpuRequest), MemMB: given("request-memory", &memoryRequest)},
				Limits:   api.ResourceAmounts{CPUs: given("limit-cpu", &cpuLimit), MemMB: given("limit-memory", &memoryLimit)},
			}}
			if cmd.Flags().Changed("limit-pids") {
				m.Resources.Limits.Pids = &pidsLimit
			}
			if *m.Resources == (api.ResourceChange{}) {
				return exit.Errorf(exit.Usage, "nothing to change: give --limit-cpu, --limit-memory, --limit-pids, --request-cpu or --request-memory")
			}
			return a.message(cmd.Context(), &to, args[0], m, func(o outcome) string { return "has " + amounts(o.Resources) })
		},
	}
	f := cmd.Flags()
	f.Float64Var(&cpuLimit, "limit-cpu", 0, "most `cores` that it may use; 0 for no limit")
	f.Float64Var(&memoryLimit, "limit-memory", 0, "most `MiB` of memory that it may use; 0 for as much as a container requests, and no limit for a process")
	f.Int64Var(&pidsLimit, "limit-pids", 0, "most `processes` and threads that it may have; -1 for any number")
	f.Float64Var(&cpuRequest, "request-cpu", 0, "`cores` that it gets when others want them, too")
	f.Float64Var(&memoryRequest, "request-memory", 0, "`MiB` of memory that it gets")
	to.flags(a, cmd)
	return cmd
}

// amounts shows what a task has now.
func amounts(r *api.ResourceUpdate) string {
	if r == nil {
		return "other resources now"
	}
	show := func(v float64, unit, none string) string {
		if v == 0 {
			return none
		}
		return fmt.Sprintf("%g%s", v, unit)
	}
	pids := ""
	switch n := r.Limits.Pids; {
	case n > 0:
		pids = fmt.Sprintf(", at most %d processes", n)
	case n < 0:
		pids = ", any number of processes"
	}
	return fmt.Sprintf("cpu %s (limit %s), memory %s (limit %s)%s now", show(r.Requests.CPUs, "", "0"), show(r.Limits.CPUs, "", "none"),
		show(r.Requests.MemMB, " MiB", "0"), show(r.Limits.MemMB, " MiB", "as requested"), pids)
}

// recipients are the tasks that a message goes to.
type recipients struct {
	scope
	task, format string
}

func (to *recipients) flags(a *app, cmd *cobra.Command) {
	outputFlag(cmd, &to.format, formatTable, formatJSON, formatYAML)
	to.taskFlags(a, cmd)
}

func (to *recipients) taskFlags(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&to.task, "task", "", "only the task of this `name`")
	to.scope.flags(a, cmd, false)
	a.completeTaskFlag(cmd)
}

// completeTaskFlag has --task completed with the tasks that the arguments mean.
func (a *app) completeTaskFlag(cmd *cobra.Command) {
	err := cmd.RegisterFlagCompletionFunc("task", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeTasks(cmd, args), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist: a mistake in this package
	}
}

// outcome is what came of a message to one task.
type outcome struct {
	Namespace string `json:"namespace"`
	Taskgroup string `json:"taskgroup"`
	Task      string `json:"task"`
	// Resources are what it has now, after a resize.
	Resources *api.ResourceUpdate `json:"resources,omitempty"`
	// ImageID is that of the image that a commit has made.
	ImageID string `json:"imageID,omitempty"`
	Error   string `json:"error,omitempty"`
}

// find returns the tasks that an argument means, one of each taskgroup.
func (to *recipients) find(ctx context.Context, a *app, arg string) (backend, []logSource, error) {
	b, err := to.backend(a)
	if err != nil {
		return nil, nil, err
	}
	namespace := to.namespace
	if namespace == "" && strings.Count(arg, "/") < 2 {
		// A name that is unique today may be another's tomorrow.
		namespace = api.DefaultNamespace
	}
	sources, err := logSources(ctx, b, arg, namespace, to.task)
	if err != nil {
		return nil, nil, err
	}
	for i := range sources[1:] {
		if before := sources[i]; before.group.Name == sources[i+1].group.Name {
			return nil, nil, exit.Errorf(exit.Usage, "%s has the tasks %s and %s: choose one with --task", before.group.Name, before.task.Name, sources[i+1].task.Name)
		}
	}
	return b, sources, nil
}

// message sends a message to every task that is meant. One that fails does not
// keep the others from theirs.
func (a *app) message(ctx context.Context, to *recipients, arg string, m api.Message, done func(outcome) string) error {
	b, sources, err := to.find(ctx, a, arg)
	if err != nil {
		return err
	}
	if m.Type == api.MessageCommit && len(sources) > 1 {
		return exit.Errorf(exit.Usage, "%q are %d taskgroups, and an image is made of one: name one, such as %s", arg, len(sources), sources[0].group.Name)
	}
	out := []outcome{}
	var errs []error
	for _, src := range sources {
		o := outcome{Namespace: src.group.Namespace, Taskgroup: src.group.Name, Task: src.task.Name}
		if m.Task = src.task.ID; src.group.ID == "" {
			err = exit.Errorf(exit.Refused, "taskgroup %s does not run: %s", src.group.Name, why(src.group))
		} else {
			var result *api.MessageResult
			if result, err = b.Message(ctx, src.group.Namespace, src.group.ID, &m); err == nil {
				o.Resources, o.ImageID = result.Resources, result.ImageID
			}
		}
		if err != nil {
			o.Error = err.Error()
			errs = append(errs, err)
		} else if to.format == formatTable {
			fmt.Fprintf(a.out, "%s/%s/%s %s: %s\n", kindTaskgroup, o.Namespace, o.Taskgroup, o.Task, done(o))
		}
		out = append(out, o)
		if ctx.Err() != nil {
			break
		}
	}
	if to.format != formatTable {
		errs = append(errs, a.printData(to.format, map[string]any{"items": out}))
	}
	return errors.Join(errs...)
}

// completeTasks are the names of the tasks that the arguments so far mean.
func (a *app) completeTasks(cmd *cobra.Command, args []string) []string {
	s := scopeOf(cmd)
	b, err := s.backend(a)
	if err != nil || len(args) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(contextOf(cmd), completionDeadline)
	defer cancel()
	sources, err := logSources(ctx, b, args[0], s.namespace, "")
	if err != nil {
		return nil
	}
	var names []string
	for _, src := range sources {
		names = append(names, src.task.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
