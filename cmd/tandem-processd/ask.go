package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tandem/internal/term"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// asker makes the commands that ask a daemon that runs. Whoever may use its socket
// needs no other tool on an agent.
type asker struct {
	o        *options
	out, err io.Writer
	// output is table or json.
	output string
	// wait is how long a command waits for what it has asked for.
	wait time.Duration
}

const (
	groupLook   = "look"
	groupChange = "change"
	asTable     = "table"
	asJSON      = "json"
	// completionTime bounds what a press of the tab key may wait for the daemon.
	completionTime = 700 * time.Millisecond
)

// asking are the commands that ask a daemon that runs.
func asking(o *options, stdout, stderr io.Writer) []*cobra.Command {
	a := &asker{o: o, out: stdout, err: stderr}
	look := []*cobra.Command{a.tasks(), a.inspect(), a.events(), a.stats(), a.logs(), a.info()}
	change := []*cobra.Command{
		a.create(), a.start(), a.stop(), a.restart(), a.reload(), a.signal(), a.limits(), a.upload(), a.exec(), a.remove(),
	}
	for _, c := range look {
		c.GroupID = groupLook
	}
	for _, c := range change {
		c.GroupID = groupChange
	}
	all := slices.Concat(look, change)
	for _, c := range all {
		c.SetUsageTemplate(strings.NewReplacer(
			// Of the daemon's own flags these two matter here.
			"Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}",
			"Which daemon:\n      --socket string   its unix socket (TANDEM_PROCESSD_SOCKET)\n      --config string   its configuration file, for the socket (TANDEM_PROCESSD_CONFIG)",
		).Replace(c.UsageTemplate()))
	}
	return all
}

// runs completes a command: it finds the daemon, and ends with an interruption, as
// the command's context does.
func (a *asker) runs(c *cobra.Command, run func(cmd *cobra.Command, d *client.Client, args []string) error) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.o.settle(cmd.Flags()); err != nil {
			return err
		}
		switch a.output {
		case "", asTable, asJSON:
		default:
			return usageError{fmt.Errorf("-o %s: want table or json", a.output)}
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		d := client.New(a.o.socket)
		defer d.Close()
		cmd.SetContext(ctx)
		return run(cmd, d, args)
	}
	return c
}

func (a *asker) outputFlag(c *cobra.Command) {
	c.Flags().StringVarP(&a.output, "output", "o", asTable, "how to print the result: `table|json`")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asTable, asJSON}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

func (a *asker) waitFlag(c *cobra.Command, what string) {
	c.Flags().DurationVar(&a.wait, "wait", 5*time.Minute, "how long to wait "+what+"; 0s not at all")
}

func (a *asker) ownerFlag(c *cobra.Command, owner *string) {
	c.Flags().StringVar(owner, "owner", "", "only those of this executor")
}

// ids checks that there are so many ids of tasks; most 0 is any number.
func ids(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return usageError{fmt.Errorf("want the id of a task, not %q; usage: %s; tandem-processd tasks lists them", args, cmd.UseLine())}
		}
		return nil
	}
}

// completeIDs asks the daemon for ids of tasks, for a moment; several may follow
// one another.
func (a *asker) completeIDs(several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several || a.o.settle(cmd.Flags()) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionTime)
		defer cancel()
		d := client.New(a.o.socket)
		defer d.Close()
		all, err := d.List(ctx, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		out := make([]string, 0, len(all))
		for i := range all {
			out = append(out, fmt.Sprintf("%s\t%s %s", all[i].ID, all[i].Name, all[i].Phase))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *asker) json(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// rows prints a table. Its texts come from tasks, so nothing in them may move a
// terminal's cursor.
func (a *asker) rows(head string, rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(head, " ", "\t"))
	for _, r := range rows {
		for i := range r {
			if r[i] = term.Clean(r[i]); r[i] == "" {
				r[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// show prints statuses as was asked for: one is not a list in JSON.
func (a *asker) show(list bool, all ...protocol.Status) error {
	if a.output == asJSON && !list && len(all) == 1 {
		return a.json(all[0])
	}
	if a.output == asJSON {
		return a.json(all)
	}
	rows := make([][]string, 0, len(all))
	for i := range all {
		s := &all[i]
		rows = append(rows, []string{s.ID, s.Name, string(s.Phase), string(s.State), number(s.Pid), strconv.Itoa(s.Restarts), clock(s.StartedAt), outcome(s)})
	}
	return a.rows("ID NAME PHASE STATE PID RESTARTS STARTED DETAIL", rows)
}

// outcome is what else is to be known of a task, in some words.
func outcome(s *protocol.Status) string {
	switch e := s.Exit; {
	case s.Failure != "":
		return s.Failure
	case s.Progress != "":
		return s.Progress
	case e == nil:
		return ""
	case !e.Known:
		return "exit code unknown"
	case e.OOMKilled:
		return "killed for lack of memory"
	case e.Signal != 0:
		return fmt.Sprintf("signal %d", e.Signal)
	default:
		return fmt.Sprintf("exit code %d", e.Code)
	}
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}
