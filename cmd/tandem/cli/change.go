package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/scheduler/wire"
)

func (a *app) scaleCommand() *cobra.Command {
	var (
		s        scope
		w        waiting
		replicas int
	)
	cmd := &cobra.Command{
		Use:   "scale KIND NAME N",
		Short: "Change how many instances of a workload run",
		Long: `Changes the number of instances of an application, process or deployment. The number is an
argument or --replicas. 0 stops all instances and keeps the declaration.`,
		Example: `  tandem scale application/web 4 -n test --wait
  tandem scale process db --replicas 0`,
		Args:              minArgs(1, "KIND NAME"),
		ValidArgsFunction: a.completeTargets(kindNames(false, isWorkload), false),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := parseTarget(args, s.namespace)
			if err != nil {
				return err
			}
			n, err := replicaCount(rest, replicas, cmd.Flags().Changed("replicas"))
			if err != nil {
				return err
			}
			if !t.kind.workload {
				return exit.Errorf(exit.Usage, "%s %q cannot be scaled: only applications, processes and deployments run instances", t.kind.name, t.name)
			}
			if err := w.check(); err != nil {
				return err
			}
			return a.change(cmd.Context(), &s, []target{t}, func(ctx context.Context, b backend, t target) error {
				if err := b.Scale(ctx, t.ref(), n); err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%s scaled to %d\n", t, n)
				if !w.wait {
					return nil
				}
				return w.until(ctx, a, settled(b, []api.Ref{t.ref()}))
			})
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", 0, "`number` of instances, in place of the argument")
	w.flags(cmd, "so many instances run, and no others")
	s.flags(a, cmd, false)
	return cmd
}

// replicaCount takes the number from the argument or the flag, not from both.
func replicaCount(rest []string, flag int, given bool) (int, error) {
	switch {
	case len(rest) > 1:
		return 0, exit.Errorf(exit.Usage, "unexpected argument %q", rest[1])
	case len(rest) == 1 && given:
		return 0, exit.Errorf(exit.Usage, "the number is given twice, as %s and by --replicas: give it once", rest[0])
	case len(rest) == 0 && !given:
		return 0, exit.Errorf(exit.Usage, "the number of instances is missing: give it as the last argument or by --replicas")
	case len(rest) == 1:
		n, err := strconv.Atoi(rest[0])
		if err != nil {
			return 0, exit.Errorf(exit.Usage, "%q is not a number of instances", rest[0])
		}
		flag = n
	}
	if flag < 0 || flag > api.MaxInstances {
		return 0, exit.Errorf(exit.Usage, "%d instances: use 0 to %d", flag, api.MaxInstances)
	}
	return flag, nil
}

func (a *app) restartCommand() *cobra.Command {
	var s scope
	var w waiting
	cmd := &cobra.Command{
		Use:   "restart KIND NAME",
		Short: "Replace the running instances of a workload, or one taskgroup",
		Long: `Stops the running instances and starts new ones in their place: all of an application,
process or deployment, or one taskgroup.`,
		Example: `  tandem restart application web -n test --wait
  tandem restart taskgroup/web-0 -n test`,
		Args:              minArgs(1, "KIND NAME"),
		ValidArgsFunction: a.completeTargets(append(kindNames(false, isWorkload), kindTaskgroup), false),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := parseTargets(args, s.namespace)
			if err != nil {
				return err
			}
			for _, t := range targets {
				if !t.kind.workload && t.kind.name != kindTaskgroup {
					return exit.Errorf(exit.Usage, "%s %q cannot be restarted: only workloads and taskgroups can", t.kind.name, t.name)
				}
			}
			if err := w.check(); err != nil {
				return err
			}
			return a.change(cmd.Context(), &s, targets, func(ctx context.Context, b backend, t target) error {
				before, err := b.Taskgroups(ctx, t.namespace)
				if err != nil {
					return err
				}
				if err := b.Restart(ctx, t); err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%s restarting\n", t)
				if !w.wait {
					return nil
				}
				return w.until(ctx, a, replaced(b, t, before))
			})
		},
	}
	w.flags(cmd, "all new instances run")
	s.flags(a, cmd, false)
	return cmd
}

// replaced looks whether none of the taskgroups from before is left and as many
// new ones run.
func replaced(b backend, t target, before []wire.Taskgroup) func(context.Context) (step, error) {
	of := func(g wire.Taskgroup) bool {
		if t.kind.workload {
			return g.Owner == t.ref()
		}
		return g.Namespace == t.namespace && (g.Name == t.name || g.ID == t.name)
	}
	old := map[string]bool{}
	for _, g := range before {
		if of(g) {
			old[g.ID] = true
		}
	}
	names := map[string]bool{}
	for _, g := range before {
		if old[g.ID] {
			names[g.Name] = true
		}
	}
	return func(ctx context.Context) (step, error) {
		groups, err := b.Taskgroups(ctx, t.namespace)
		if err != nil {
			return step{}, err
		}
		ready, left := 0, 0
		var s step
		for _, g := range groups {
			switch {
			case old[g.ID]:
				left++
			case !names[g.Name]:
			case g.Ready:
				ready++
			default:
				s.details = append(s.details, fmt.Sprintf("%s/%s is %s: %s", g.Namespace, g.Name, stateCell(g.State).Text, why(g)))
			}
		}
		s.done = left == 0 && ready >= len(names)
		s.text = fmt.Sprintf("%d/%d ready, %s left", ready, len(names), count(left, "old one"))
		return s, nil
	}
}

func (a *app) deleteCommand() *cobra.Command {
	var (
		in     input
		s      scope
		w      waiting
		ignore bool
	)
	cmd := &cobra.Command{
		Use:   "delete (-f FILE | KIND NAME...)",
		Short: "Remove declarations and stop what they run",
		Long: `Removes objects by their artifacts or by name, and stops all instances of them. With
--wait, returns when no taskgroup of them is left.`,
		Example: `  tandem delete -f examples/ --wait
  tandem delete application web -n test
  tandem delete app/web svc/web -n test --ignore-not-found`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeTargets(kindNames(false, isDeclared), true),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := a.deletionTargets(cmd, &in, args, s.namespace)
			if err != nil {
				return err
			}
			if err := w.check(); err != nil {
				return err
			}
			b, err := s.backend(a)
			if err != nil {
				return err
			}
			var refs []api.Ref
			for _, t := range targets {
				ref, err := a.deleteOne(cmd.Context(), b, t, s.namespace)
				if exit.Of(err) == exit.NotFound && ignore {
					continue
				}
				if err != nil {
					return err
				}
				refs = append(refs, ref)
			}
			if !w.wait {
				return nil
			}
			return w.until(cmd.Context(), a, emptied(b, workloads(refs)))
		},
	}
	in.fileFlag(cmd)
	cmd.Flags().BoolVar(&ignore, "ignore-not-found", false, "take what does not exist for deleted")
	w.flags(cmd, "no taskgroup is left")
	s.flags(a, cmd, false)
	return cmd
}

// deletionTargets are the objects of the files, in the reverse of the order in
// which they are best applied, or those of the arguments.
func (a *app) deletionTargets(cmd *cobra.Command, in *input, args []string, namespace string) ([]target, error) {
	switch {
	case len(args) == 0 && len(in.paths) == 0:
		return nil, exit.Errorf(exit.Usage, "nothing to delete: give KIND NAME or -f FILE; see %q", cmd.CommandPath()+" --help")
	case len(args) > 0 && len(in.paths) > 0:
		return nil, exit.Errorf(exit.Usage, "%q and -f are both given: delete by name or by file", args[0])
	case len(args) == 0:
		docs, err := in.read(a, cmd)
		if err != nil {
			return nil, err
		}
		var out []target
		for i := range docs {
			ref := docs[i].Ref()
			k, err := lookupKind(string(ref.Kind))
			if err != nil {
				return nil, err
			}
			out = append(out, target{kind: k, namespace: ref.Namespace, name: ref.Name})
		}
		order := api.Kinds()
		slices.SortStableFunc(out, func(x, y target) int {
			return slices.Index(order, y.kind.declared) - slices.Index(order, x.kind.declared)
		})
		return out, nil
	}
	targets, err := parseTargets(args, namespace)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if t.kind.declared == "" {
			return nil, exit.Errorf(exit.Usage, "%s %q cannot be deleted: delete or scale the workload that it belongs to", t.kind.name, t.name)
		}
	}
	return targets, nil
}

func (a *app) deleteOne(ctx context.Context, b backend, t target, namespace string) (api.Ref, error) {
	if t.namespace == "" {
		t.namespace = namespace
	}
	t, err := own(ctx, b, t)
	if err != nil {
		return t.ref(), err
	}
	if err := b.Delete(ctx, t.ref()); err != nil {
		return t.ref(), err
	}
	fmt.Fprintf(a.out, "%s deleted\n", t)
	return t.ref(), nil
}

// change resolves targets, all before the first is changed, and changes them.
func (a *app) change(ctx context.Context, s *scope, targets []target, act func(context.Context, backend, target) error) error {
	b, err := s.backend(a)
	if err != nil {
		return err
	}
	for i, t := range targets {
		if t.namespace == "" {
			t.namespace = s.namespace
		}
		if targets[i], err = own(ctx, b, t); err != nil {
			return err
		}
	}
	for _, t := range targets {
		if err := act(ctx, b, t); err != nil {
			return err
		}
	}
	return nil
}
