package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
)

// watchInterval is how often --watch looks.
const watchInterval = time.Second

type getOptions struct {
	scope  scope
	format string
	watch  bool
}

func (a *app) getCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get KIND [NAME...]",
		Short: "Show what is declared and what runs",
		Long: `Shows objects of a kind as a table, or as data with -o. "get all" shows workloads,
services and taskgroups. -o json and -o yaml of what was applied give back what was applied;
taskgroups, tasks and agents are given as the scheduler sees them. HEALTH is what the checks
of a task say, "-" while that is not known and for tasks without checks.

Without -n, all namespaces are shown.

` + kindsHelp(),
		Example: `  tandem get taskgroups
  tandem get all -n test
  tandem get application web -o yaml > web.yaml
  tandem get tasks -o wide --watch
  tandem get app,svc -o name`,
		Args:              minArgs(1, "KIND"),
		ValidArgsFunction: a.completeTargets(kindNames(true), true),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := o.scope.backend(a)
			if err != nil {
				return err
			}
			return a.get(cmd.Context(), b, args, &o)
		},
	}
	outputFlag(cmd, &o.format, formatTable, formatWide, formatJSON, formatYAML, formatName)
	o.scope.flags(a, cmd, true)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on and show what changes, until Ctrl-C")
	return cmd
}

// listing is what get shows of one kind.
type listing struct {
	kind kind
	rows []row
	// names are for -o name, raws are documents as applied, data anything else.
	names []string
	raws  []json.RawMessage
	data  []any
}

func (a *app) get(ctx context.Context, b backend, args []string, o *getOptions) error {
	shown, names, err := parseKinds(args)
	if err != nil {
		return err
	}
	if o.watch {
		if o.format == formatJSON || o.format == formatYAML {
			return exit.Errorf(exit.Usage, "--watch shows tables and names only; leave out -o %s", o.format)
		}
		return a.watch(ctx, b, shown, names, o)
	}
	lists, err := o.list(ctx, b, shown, names)
	if err != nil {
		return err
	}
	switch o.format {
	case formatJSON, formatYAML:
		return a.printLists(o.format, lists, len(names) == 1)
	case formatName:
		for _, l := range lists {
			for _, n := range l.names {
				fmt.Fprintln(a.out, n)
			}
		}
		return nil
	}
	return a.printTables(lists, o.format == formatWide, o.scope.namespace)
}

// parseKinds reads KIND[,KIND...] [NAME...] and KIND/NAME.
func parseKinds(args []string) ([]kind, []string, error) {
	words := splitComma(args[0])
	if len(words) == 1 && words[0] == kindAll {
		if len(args) > 1 {
			return nil, nil, exit.Errorf(exit.Usage, `"get all" takes no name; name a kind to get %q`, args[1])
		}
		words = allKinds
	}
	if len(words) == 1 && slices.ContainsFunc(args, hasSlash) {
		targets, err := parseTargets(args, "")
		if err != nil {
			return nil, nil, err
		}
		var names []string
		for _, t := range targets {
			if t.kind.name != targets[0].kind.name {
				return nil, nil, exit.Errorf(exit.Usage, "%s and %s are of different kinds: get one kind at a time", targets[0], t)
			}
			name := t.name
			if t.namespace != "" {
				name = t.namespace + "/" + name
			}
			names = append(names, name)
		}
		return []kind{targets[0].kind}, names, nil
	}
	var out []kind
	for _, w := range words {
		k, err := lookupKind(w)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, k)
	}
	if len(out) > 1 && len(args) > 1 {
		return nil, nil, exit.Errorf(exit.Usage, "names go with one kind only; %d are given", len(out))
	}
	return out, args[1:], nil
}

// list asks the scheduler. Every name must be found.
func (o *getOptions) list(ctx context.Context, b backend, shown []kind, names []string) ([]listing, error) {
	now := time.Now()
	var out []listing
	for _, k := range shown {
		l, err := listKind(ctx, b, k, o.scope.namespace, now)
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			if l, err = l.only(names, o.scope.namespace); err != nil {
				return nil, err
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func listKind(ctx context.Context, b backend, k kind, namespace string, now time.Time) (listing, error) {
	l := listing{kind: k}
	add := func(r row, name string, data any) {
		l.rows, l.names, l.data = append(l.rows, r), append(l.names, name), append(l.data, data)
	}
	switch {
	case k.declared != "":
		objects, err := b.Objects(ctx, k.declared, namespace)
		if err != nil {
			return l, err
		}
		for _, o := range objects {
			add(objectRow(o, now), o.String(), o.Raw)
			l.raws = append(l.raws, o.Raw)
		}
	case k.name == kindAgent:
		agents, err := b.Agents(ctx)
		if err != nil {
			return l, err
		}
		for _, x := range agents {
			add(agentRow(x), "agent/"+x.Hostname, x)
		}
	default:
		groups, err := b.Taskgroups(ctx, namespace)
		if err != nil {
			return l, err
		}
		for _, g := range groups {
			if k.name == kindTaskgroup {
				add(taskgroupRow(g, now), "taskgroup/"+g.Namespace+"/"+g.Name, g)
				continue
			}
			for _, t := range g.Tasks {
				add(taskRow(g, t, now), "task/"+g.Namespace+"/"+g.Name+"/"+t.Name, t)
			}
		}
	}
	return l, nil
}

// only keeps the named things: by name, namespace/name, or id.
func (l listing) only(names []string, namespace string) (listing, error) {
	out := listing{kind: l.kind}
	var errs []error
	for _, name := range names {
		found := false
		for i, full := range l.names {
			if !matches(full, name) && l.rows[i].key != name {
				continue
			}
			found = true
			out.names, out.rows, out.data = append(out.names, full), append(out.rows, l.rows[i]), append(out.data, l.data[i])
			if l.raws != nil {
				out.raws = append(out.raws, l.raws[i])
			}
		}
		if !found {
			errs = append(errs, notFound(l.kind, name, namespace, l.names))
		}
	}
	return out, exit.With(exit.NotFound, errors.Join(errs...))
}

// matches tells whether name is the end of full, cut at a slash.
func matches(full, name string) bool {
	return full == name || len(full) > len(name) && full[len(full)-len(name)-1] == '/' && full[len(full)-len(name):] == name
}

// notFound names the nearest of what there is.
func notFound(k kind, name, namespace string, there []string) error {
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	hint := `; "tandem get ` + k.plural + `" lists what there is`
	var short []string
	for _, full := range there {
		short = append(short, lastPart(full))
	}
	if near := api.Nearest(name, short); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return exit.Errorf(exit.NotFound, "%s %q not found%s%s", k.name, name, where, hint)
}

// printLists prints data: a single named thing by itself, otherwise a list.
func (a *app) printLists(format string, lists []listing, single bool) error {
	var raws []json.RawMessage
	var data []any
	declared := true
	for _, l := range lists {
		declared = declared && l.kind.declared != ""
		raws, data = append(raws, l.raws...), append(data, l.data...)
	}
	if !declared {
		if single && len(data) == 1 {
			return a.printData(format, data[0])
		}
		if data == nil {
			data = []any{}
		}
		return a.printData(format, map[string]any{"kind": "List", "items": data})
	}
	f := api.FormatJSON
	if format == formatYAML {
		f = api.FormatYAML
	}
	if !single && len(raws) == 1 && f == api.FormatJSON {
		// A list of one is still a list, so that scripts need not tell them apart.
		return a.printData(format, map[string]any{"kind": "List", "items": raws})
	}
	return api.EncodeList(a.out, raws, f)
}

func (a *app) printTables(lists []listing, wide bool, namespace string) error {
	shown := 0
	for _, l := range lists {
		if len(l.rows) == 0 {
			continue
		}
		if shown++; shown > 1 {
			fmt.Fprintln(a.out)
		}
		if len(lists) > 1 {
			fmt.Fprintf(a.out, "%s\n", l.kind.plural)
		}
		if err := a.printTable(l, wide); err != nil {
			return err
		}
	}
	if shown == 0 {
		what := "objects"
		if len(lists) == 1 {
			what = lists[0].kind.plural
		}
		if namespace != "" && what != "agents" {
			what += " in namespace " + namespace
		}
		fmt.Fprintf(a.err, "there are no %s\n", what)
	}
	return nil
}

func (a *app) printTable(l listing, wide bool) error {
	t := newTable(l.kind, wide)
	for _, r := range l.rows {
		t.Row(r.cells...)
	}
	return t.Write(a.out)
}
