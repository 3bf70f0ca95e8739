package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/internal/term"
	"tandem/scheduler/wire"
)

func (a *app) describeCommand() *cobra.Command {
	var s scope
	var format string
	cmd := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show everything about one object",
		Long: `Shows the state of an object, its taskgroups and tasks with their ports and last messages,
why something is not placed, and what has happened to it.`,
		Example: `  tandem describe application web
  tandem describe taskgroup/web-0 -n test
  tandem describe process db -n test -o json`,
		Args:              minArgs(1, "KIND NAME"),
		ValidArgsFunction: a.completeTargets(kindNames(false), false),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := parseTargets(args, s.namespace)
			if err != nil {
				return err
			}
			b, err := s.backend(a)
			if err != nil {
				return err
			}
			items := []*description{}
			for i, t := range targets {
				if t.namespace == "" {
					t.namespace = s.namespace
				}
				if t, err = find(cmd.Context(), b, t); err != nil {
					return err
				}
				if format != formatText {
					d, err := a.describeData(cmd.Context(), b, t)
					if err != nil {
						return err
					}
					items = append(items, d)
					continue
				}
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				if err := a.describe(cmd.Context(), b, t); err != nil {
					return err
				}
			}
			if format != formatText {
				return a.printData(format, map[string]any{"items": items})
			}
			return nil
		},
	}
	outputFlag(cmd, &format, formatText, formatJSON, formatYAML)
	s.flags(a, cmd, false)
	return cmd
}

func (a *app) describe(ctx context.Context, b backend, t target) error {
	switch {
	case t.kind.declared != "":
		return a.describeObject(ctx, b, t)
	case t.kind.name == kindAgent:
		return a.describeAgent(ctx, b, t)
	}
	groups, err := b.Taskgroups(ctx, t.namespace)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if t.kind.name == kindTaskgroup {
			if g.Name == t.name || g.ID == t.name {
				a.describeTaskgroup(g)
				return a.history(ctx, b, g.Owner)
			}
			continue
		}
		for _, task := range g.Tasks {
			if task.Name == t.name || task.ID == t.name {
				a.field("Taskgroup", "%s/%s", g.Namespace, g.Name)
				a.describeTask(g, task, "")
				return nil
			}
		}
	}
	return notFound(t.kind, t.name, t.namespace, nil)
}

// field writes one "Name: value" line; an empty value is left out.
func (a *app) field(name, format string, args ...any) {
	value := term.Clean(fmt.Sprintf(format, args...))
	if value == "" {
		return
	}
	fmt.Fprintf(a.out, "%-14s %s\n", name+":", value)
}

func (a *app) title(format string, args ...any) {
	fmt.Fprintf(a.out, "\n%s\n", a.out.Style(term.Strong, fmt.Sprintf(format, args...)))
}

func (a *app) describeObject(ctx context.Context, b backend, t target) error {
	objects, err := b.Objects(ctx, t.kind.declared, t.namespace)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.Name != t.name {
			continue
		}
		a.field("Name", "%s", o.Name)
		a.field("Namespace", "%s", o.Namespace)
		a.field("Kind", "%s", o.Kind)
		a.field("Ports", "%s", servicePorts(o.Raw))
		a.field("Created", "%s", when(o.Created))
		if st := o.Status; st != nil {
			a.field("Instances", "%d declared, %d running, %d ready, %d up to date", st.Desired, st.Running, st.Ready, st.UpToDate)
			a.field("Restarts", "%d", st.Restarts)
			a.field("Message", "%s", st.Message)
			groups, err := b.Taskgroups(ctx, t.namespace)
			if err != nil {
				return err
			}
			for _, g := range groups {
				if g.Owner == o.Ref {
					a.title("Taskgroup %s", g.Name)
					a.describeTaskgroup(g)
				}
			}
		}
		return a.history(ctx, b, o.Ref)
	}
	return notFound(t.kind, t.name, t.namespace, nil)
}

func (a *app) describeTaskgroup(g wire.Taskgroup) {
	a.field("Name", "%s", g.Name)
	a.field("Namespace", "%s", g.Namespace)
	a.field("ID", "%s", g.ID)
	a.field("Belongs to", "%s/%s", g.Owner.Kind, g.Owner.Name)
	c := stateCell(g.State)
	a.field("State", "%s", c.Text)
	a.field("Agent", "%s", g.Agent)
	a.field("Address", "%s", g.NodeIP)
	a.field("Restarts", "%d", g.Restarts)
	a.field("Created", "%s", when(g.Created))
	a.field("Message", "%s", g.Message)
	for i, reason := range g.Waiting {
		name := "Not placed"
		if i > 0 {
			name = ""
			fmt.Fprintf(a.out, "%-14s %s\n", name, term.Clean(reason))
			continue
		}
		a.field(name, "%s", reason)
	}
	for _, t := range g.Tasks {
		a.describeTask(g, t, "  ")
	}
}

func (a *app) describeTask(g wire.Taskgroup, t wire.Task, indent string) {
	line := func(name, format string, args ...any) {
		if value := term.Clean(fmt.Sprintf(format, args...)); value != "" {
			fmt.Fprintf(a.out, "%s  %-12s %s\n", indent, name+":", value)
		}
	}
	c := stateCell(t.State)
	fmt.Fprintf(a.out, "%sTask %s (%s): %s\n", indent, term.Clean(t.Name), t.Kind, a.out.Style(c.Style, c.Text))
	line("ID", "%s", t.ID)
	line("Ports", "%s", strings.Join(portTexts(t), ", "))
	if t.Healthy != nil {
		line("Healthy", "%t", *t.Healthy)
	}
	line("Message", "%s", t.Message)
	r := t.Report
	if r == nil {
		return
	}
	for _, c := range r.Checks {
		line("Check", "%s", checkText(c))
	}
	if r.Pid > 0 {
		on := ""
		if g.Agent != "" { // one that waits for a place has none
			on = " on " + g.Agent
		}
		line("Pid", "%d%s", r.Pid, on)
	}
	line("Container", "%s", r.ContainerID)
	line("Addresses", "%s", strings.Join(r.IPs, ", "))
	line("Started", "%s", when(r.StartedAt))
	line("Finished", "%s", when(r.FinishedAt))
	switch {
	case r.OOMKilled:
		line("Exit", "killed: it used more memory than its limit")
	case r.Signal != 0:
		line("Exit", "by signal %d", r.Signal)
	case r.ExitCode != nil:
		line("Exit", "code %d", *r.ExitCode)
	}
	line("Sandbox", "%s", r.Sandbox)
	if out := strings.TrimRight(r.Output, "\n"); out != "" {
		fmt.Fprintf(a.out, "%s  Last output:\n", indent)
		for text := range strings.SplitSeq(out, "\n") {
			fmt.Fprintf(a.out, "%s    %s\n", indent, term.Clean(text))
		}
	}
}

func (a *app) describeAgent(ctx context.Context, b backend, t target) error {
	agents, err := b.Agents(ctx)
	if err != nil {
		return err
	}
	groups, err := b.Taskgroups(ctx, "")
	if err != nil {
		return err
	}
	for _, x := range agents {
		if x.Hostname != t.name && x.ID != t.name {
			continue
		}
		r := agentRow(x)
		for i, c := range newTable(t.kind, true).Columns {
			a.field(strings.ToUpper(c.Title[:1])+strings.ToLower(c.Title[1:]), "%s", r.cells[i].Text)
		}
		a.title("Taskgroups")
		k, err := lookupKind(kindTaskgroup)
		if err != nil {
			return err
		}
		l := listing{kind: k}
		for _, g := range groups {
			if g.Agent == x.Hostname {
				l.rows = append(l.rows, taskgroupRow(g, time.Now()))
			}
		}
		return a.printTable(l, false)
	}
	return notFound(t.kind, t.name, "", nil)
}

func (a *app) history(ctx context.Context, b backend, ref api.Ref) error {
	events, err := b.Events(ctx, ref)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return nil
	}
	a.title("History")
	table := term.Table{Columns: []term.Column{{Title: "TIME"}, {Title: "OBJECT"}, {Title: "REASON"}, {Title: "MESSAGE", Flexible: true}}}
	for _, e := range events {
		table.Row(term.Text(when(e.Time)), term.Text(e.Object), term.Text(e.Reason), term.Text(e.Text))
	}
	return table.Write(a.out)
}

// when renders a time in local time, with its age; empty for none.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05") + " (" + since(time.Since(t)) + " ago)"
}

// checkText says what is known by one check, such as "TCP (liveness): healthy".
func checkText(c api.CheckReport) string {
	state := "nothing known yet"
	switch {
	case c.Healthy != nil && *c.Healthy:
		state = "healthy"
	case c.Healthy != nil:
		state = "unhealthy: " + c.Message
	}
	return fmt.Sprintf("%s (%s): %s", c.Type, c.Probe, state)
}
