package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"tandem/cmd/tandem/exit"
	"tandem/internal/term"
	"tandem/scheduler/wire"
)

func (a *app) logsCommand() *cobra.Command {
	var (
		s                scope
		o                logOptions
		task, format     string
		onlyErrors, list bool
	)
	cmd := &cobra.Command{
		Use:   "logs (TASKGROUP | KIND/NAME)",
		Short: "Show what tasks have written",
		Long: `Shows the standard output, or with --stderr the standard error, of the tasks of a taskgroup,
or of all taskgroups of a workload. When there are several tasks, each line begins with the
name of its taskgroup and task. Output can be read as long as the agent keeps the sandbox.

A process may write files of its own, which its logPath names. --stream log shows the one that
was written to last, --stream log/NAME that of a name, and --list the names. While the process
runs they are read by the way that exec takes, so the agent's operator allows or forbids that with
the same key (exec in /etc/tandem/executor.yaml). Of those that it wrote to, the ends stay in the
sandbox when it has ended: 4 MiB of each, 16 MiB of all.`,
		Example: `  tandem logs web-0
  tandem logs web-0 --task nginx --stderr --tail 20
  tandem logs application/web -n test --follow
  tandem logs db-0 -n test --list
  tandem logs db-0 -n test --stream log/mongod.log --tail 100 -f`,
		Args:              exactArgs("TASKGROUP"),
		ValidArgsFunction: a.completeLogs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case onlyErrors && cmd.Flags().Changed("stream"):
				return exit.Errorf(exit.Usage, "--stderr and --stream are both given: --stderr is --stream stderr")
			case list && (onlyErrors || o.Follow || cmd.Flags().Changed("stream") || cmd.Flags().Changed("tail")):
				return exit.Errorf(exit.Usage, "--list shows the names of streams; leave the other flags out")
			case !list && cmd.Flags().Changed("output"):
				return exit.Errorf(exit.Usage, "-o is for --list: a log is shown as it is")
			case onlyErrors:
				o.Stream = streamErr
			}
			if err := checkStream(o.Stream); err != nil {
				return err
			}
			b, err := s.backend(a)
			if err != nil {
				return err
			}
			sources, err := logSources(cmd.Context(), b, args[0], s.namespace, task)
			if err != nil {
				return err
			}
			if list {
				return a.listStreams(cmd.Context(), b, sources, format)
			}
			return a.logs(cmd.Context(), b, sources, o)
		},
	}
	s.flags(a, cmd, false)
	f := cmd.Flags()
	f.StringVar(&task, "task", "", "only the task of this `name`")
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on and show what is written, until Ctrl-C or the tasks' end")
	f.StringVar(&o.Stream, "stream", streamOut, "`name` of what to show: stdout, stderr, log or log/NAME")
	f.BoolVar(&onlyErrors, "stderr", false, "the standard error in place of the standard output")
	f.IntVar(&o.Tail, "tail", -1, "only the last `lines`; all when negative")
	f.BoolVar(&list, "list", false, "list the streams, among them the files of logPath, and show none")
	outputFlag(cmd, &format, formatTable, formatJSON, formatYAML)
	a.completeTaskFlag(cmd)
	if err := cmd.RegisterFlagCompletionFunc("stream", a.completeStreams); err != nil {
		panic(err) // the flag does not exist: a mistake in this package
	}
	return cmd
}

// logSource is one task whose output is to be shown.
type logSource struct {
	group wire.Taskgroup
	task  wire.Task
}

// names are those by which the scheduler is asked for the task. One that waits to be started
// again shows what it wrote before.
func (s *logSource) names() (group, task string) {
	if s.group.ID == "" {
		return "-", s.task.ID
	}
	return s.group.ID, s.task.Name
}

// logSources finds the tasks that an argument means: a taskgroup by name or id,
// or a workload by KIND/NAME or by its bare name.
func logSources(ctx context.Context, b backend, arg, namespace, task string) ([]logSource, error) {
	var owner *target
	name := arg
	if hasSlash(arg) {
		t, _, err := parseTarget([]string{arg}, namespace)
		if err != nil {
			return nil, err
		}
		name, namespace = t.name, t.namespace
		switch {
		case t.kind.workload:
			owner = &t
		case t.kind.name != kindTaskgroup:
			return nil, exit.Errorf(exit.Usage, "%s %q has no logs: name a taskgroup, an application, a process or a deployment", t.kind.name, t.name)
		}
	}
	groups, err := b.Taskgroups(ctx, "")
	if err != nil {
		return nil, err
	}
	var here []wire.Taskgroup
	for _, g := range groups {
		if namespace == "" || g.Namespace == namespace {
			here = append(here, g)
		}
	}
	found, namespaces := meant(here, name, owner, arg)
	if len(namespaces) > 1 {
		return nil, exit.Errorf(exit.Usage, "%q exists in several namespaces (%s): choose one with -n", arg, strings.Join(namespaces, ", "))
	}
	if len(found) == 0 {
		if _, elsewhere := meant(groups, name, owner, arg); len(elsewhere) > 0 {
			return nil, notHere(kindTaskgroup, arg, namespace, elsewhere)
		}
		var names []string
		for _, g := range here {
			names = append(names, g.Name, g.Owner.Name)
		}
		k, err := lookupKind(kindTaskgroup)
		if err != nil {
			return nil, err
		}
		return nil, notFound(k, arg, namespace, names)
	}
	return pickTasks(found, task)
}

// meant are the taskgroups that an argument names, and the namespaces they are in:
// by their own name or id, otherwise those of the workload that has the name.
func meant(groups []wire.Taskgroup, name string, owner *target, arg string) (found []wire.Taskgroup, namespaces []string) {
	pick := func(match func(wire.Taskgroup) bool) {
		for _, g := range groups {
			if !match(g) {
				continue
			}
			found = append(found, g)
			if !slices.Contains(namespaces, g.Namespace) {
				namespaces = append(namespaces, g.Namespace)
			}
		}
	}
	if owner == nil {
		pick(func(g wire.Taskgroup) bool { return g.Name == name || g.ID == name })
	}
	if len(found) == 0 {
		pick(func(g wire.Taskgroup) bool {
			return g.Owner.Name == name && (owner == nil || g.Owner.Kind == owner.kind.declared) && (owner != nil || !hasSlash(arg))
		})
	}
	return found, namespaces
}

func pickTasks(groups []wire.Taskgroup, task string) ([]logSource, error) {
	var out []logSource
	var names []string
	for _, g := range groups {
		for _, t := range g.Tasks {
			names = append(names, t.Name)
			if task == "" || t.Name == task || t.ID == task {
				out = append(out, logSource{g, t})
			}
		}
	}
	if len(out) == 0 && task != "" {
		return nil, exit.Errorf(exit.NotFound, "no task %q in %s; tasks are %s", task, groups[0].Name, strings.Join(names, ", "))
	}
	if len(out) == 0 {
		return nil, exit.Errorf(exit.NotFound, "%s has no tasks yet: %s", groups[0].Name, term.Clean(why(groups[0])))
	}
	return out, nil
}

// logs copies the outputs: one after the other, or all at once when they are followed.
func (a *app) logs(ctx context.Context, b backend, sources []logSource, o logOptions) error {
	var mu sync.Mutex
	write := func(src logSource) error {
		group, task := src.names()
		r, err := b.Logs(ctx, group, task, o)
		if err != nil {
			return fmt.Errorf("logs of %s, task %s: %w", src.group.Name, src.task.Name, err)
		}
		defer r.Close()
		var w io.Writer = lockedWriter{&mu, a.out}
		if len(sources) > 1 {
			w = &prefixWriter{to: w, prefix: a.out.Style(term.Dim, src.group.Name+" "+src.task.Name+" |") + " "}
		}
		_, err = io.Copy(w, r)
		if p, ok := w.(*prefixWriter); ok {
			err = errors.Join(err, p.flush())
		}
		if ctx.Err() != nil {
			return nil // the user has ended it
		}
		return err
	}
	if !o.Follow {
		var errs []error
		for _, src := range sources {
			errs = append(errs, write(src))
		}
		return errors.Join(errs...)
	}
	errs := make([]error, len(sources))
	var wg sync.WaitGroup
	for i, src := range sources {
		wg.Go(func() { errs[i] = write(src) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// lockedWriter keeps writes of several sources apart.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// maxLine bounds what is kept of a line that does not end.
const maxLine = 64 << 10

// prefixWriter writes whole lines, each after a prefix.
type prefixWriter struct {
	to     io.Writer
	prefix string
	line   []byte
}

func (p *prefixWriter) Write(data []byte) (int, error) {
	p.line = append(p.line, data...)
	for {
		i := bytes.IndexByte(p.line, '\n')
		if i < 0 && len(p.line) < maxLine {
			return len(data), nil
		}
		if i < 0 {
			i = len(p.line) - 1
		}
		if _, err := io.WriteString(p.to, p.prefix+string(bytes.TrimRight(p.line[:i+1], "\n"))+"\n"); err != nil {
			return 0, err
		}
		p.line = append(p.line[:0], p.line[i+1:]...)
	}
}

// flush writes a last line that has no end.
func (p *prefixWriter) flush() error {
	if len(p.line) == 0 {
		return nil
	}
	_, err := io.WriteString(p.to, p.prefix+string(p.line)+"\n")
	p.line = nil
	return err
}

func (a *app) completeLogs(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if hasSlash(toComplete) {
		return a.completeTargets(nil, false)(cmd, args, toComplete)
	}
	return a.completeNames(cmd, kindTaskgroup), cobra.ShellCompDirectiveNoFileComp
}
