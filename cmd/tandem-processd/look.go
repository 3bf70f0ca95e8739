package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/internal/term"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

func (a *asker) tasks() *cobra.Command {
	var owner string
	c := a.runs(&cobra.Command{
		Use: "tasks", Aliases: []string{"list", "ls"}, Short: "List the tasks of the daemon that runs", Args: noArguments,
		Long: `Lists the tasks of the daemon that runs. PHASE is where a task is: staging, fetching, starting,
running, stopping, stopped or failed. STATE says the same in the daemon's own words, more closely.`,
		Example: "  tandem-processd tasks\n  tandem-processd tasks --owner EXECUTOR -o json",
	}, func(cmd *cobra.Command, d *client.Client, _ []string) error {
		ctx := cmd.Context()
		all, err := d.List(ctx, owner)
		if err != nil {
			return err
		}
		return a.show(true, all...)
	})
	a.outputFlag(c)
	a.ownerFlag(c, &owner)
	return c
}

func (a *asker) inspect() *cobra.Command {
	c := a.runs(&cobra.Command{
		Use: "inspect ID", Aliases: []string{"get"}, Short: "Show all that is known about a task", Args: ids(1, 1),
		Long: `Shows all that is known about a task: its phase and state, how it ended and why, what it may use,
and what was asked for and cannot be had on this agent. Its environment and its files are shown to nobody.`,
		Example:           "  tandem-processd inspect ID\n  tandem-processd inspect ID -o json",
		ValidArgsFunction: a.completeIDs(false),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		s, err := d.Status(ctx, args[0])
		if err != nil || a.output == asJSON {
			if err == nil {
				err = a.json(s)
			}
			return err
		}
		row := func(key, value string) {
			if value != "" {
				fmt.Fprintf(a.out, "%-10s %s\n", key, term.Clean(value))
			}
		}
		row("id", s.ID)
		row("name", s.Name)
		row("owner", s.Owner)
		row("phase", string(s.Phase))
		row("state", string(s.State))
		row("pid", number(s.Pid))
		row("started", clock(s.StartedAt))
		row("finished", clock(s.FinishedAt))
		row("restarts", number(s.Restarts))
		row("limits", limitsText(s.Limits))
		if s.Exit != nil {
			e := s
			e.Failure, e.Progress = "", ""
			row("exit", outcome(&e))
		}
		row("failure", s.Failure)
		row("stop", s.StopFailure)
		row("progress", s.Progress)
		if r := s.Reload; r != nil {
			row("reload", reloadText(r))
		}
		for _, n := range s.Notes {
			row("note", n)
		}
		return nil
	})
	a.outputFlag(c)
	return c
}

func reloadText(r *protocol.Reload) string {
	switch {
	case r.Running:
		return fmt.Sprintf("number %d, under way", r.Number)
	case r.Failure != "":
		return fmt.Sprintf("number %d failed: %s", r.Number, r.Failure)
	}
	return fmt.Sprintf("number %d done", r.Number)
}

func limitsText(l protocol.Limits) string {
	var out []string
	add := func(some bool, format string, v any) {
		if some {
			out = append(out, fmt.Sprintf(format, v))
		}
	}
	add(l.CPUs > 0, "%g cores", l.CPUs)
	add(l.CPURequest > 0, "%g cores when others want them, too", l.CPURequest)
	add(l.MemMB > 0, "%g MiB", l.MemMB)
	add(l.Pids > 0, "%d processes", l.Pids)
	return strings.Join(out, ", ")
}

func (a *asker) events() *cobra.Command {
	var owner string
	c := a.runs(&cobra.Command{
		Use: "events", Aliases: []string{"watch"}, Short: "Show each task as it is, and then each change, until interrupted", Args: noArguments,
		Long: `Shows each task as it is, and then each that changes, until it is interrupted or the daemon ends. With
-o json each line is one status.`,
		Example: "  tandem-processd events\n  tandem-processd events --owner EXECUTOR -o json | jq -r .phase",
	}, func(cmd *cobra.Command, d *client.Client, _ []string) error {
		ctx := cmd.Context()
		line := json.NewEncoder(a.out)
		err := d.Events(ctx, owner, nil, func(s protocol.Status) error {
			if a.output == asJSON {
				return line.Encode(s)
			}
			_, err := fmt.Fprintf(a.out, "%s  %-8s  %-11s  %s  %s  %s\n", time.Now().Format(time.TimeOnly), s.Phase, s.State,
				term.Clean(s.ID), term.Clean(s.Name), term.Clean(outcome(&s)))
			return err
		})
		return unlessInterrupted(ctx, err)
	})
	a.outputFlag(c)
	a.ownerFlag(c, &owner)
	return c
}

// unlessInterrupted is the error of what goes on until it is interrupted.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = nil
	}
	return err
}

func (a *asker) stats() *cobra.Command {
	c := a.runs(&cobra.Command{
		Use: "stats [ID]...", Short: "Show what tasks use: processor time, memory, processes", Args: ids(0, 0),
		Long:              "Shows what tasks use now, all of them when none is named: processor time since their start, memory, and processes.",
		Example:           "  tandem-processd stats\n  tandem-processd stats ID -o json",
		ValidArgsFunction: a.completeIDs(true),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		named := len(args) > 0
		if !named {
			all, err := d.List(ctx, "")
			if err != nil {
				return err
			}
			for i := range all {
				args = append(args, all[i].ID)
			}
		}
		all := []protocol.Stats{}
		for _, id := range args {
			s, err := d.Stats(ctx, id)
			switch {
			case err == nil:
				all = append(all, s)
			case named || !client.IsCode(err, protocol.CodeNotFound):
				return err
			}
		}
		if a.output == asJSON {
			return a.json(all)
		}
		var rows [][]string
		for _, s := range all {
			rows = append(rows, []string{
				s.ID, string(s.State), fmt.Sprintf("%.2fs", s.CPUSeconds), fmt.Sprintf("%.1f", float64(s.MemoryBytes)/(1<<20)), strconv.Itoa(s.Processes),
				strconv.FormatInt(s.ForksRefused, 10),
			})
		}
		return a.rows("ID STATE CPU MEMORY-MIB PROCESSES FORKS-REFUSED", rows)
	})
	a.outputFlag(c)
	return c
}

func (a *asker) logs() *cobra.Command {
	var stream string
	var bytes int
	var follow, list bool
	c := a.runs(&cobra.Command{
		Use: "logs ID", Short: "Show what a task wrote, to its output or to its logPath", Args: ids(1, 1),
		Long: `Shows the end of what a task wrote to its stdout or stderr, or to a file of its logPath. With -f it
goes on with what is written, over rotations, until nothing of the task runs.`,
		Example:           "  tandem-processd logs -f ID\n  tandem-processd logs --list ID\n  tandem-processd logs --stream log/mongod.log ID",
		ValidArgsFunction: a.completeIDs(false),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		if bytes < 1 {
			return usageError{fmt.Errorf("--bytes %d: want a positive number", bytes)}
		}
		if !list {
			return unlessInterrupted(ctx, d.Logs(ctx, args[0], stream, bytes, follow, a.out))
		}
		files, err := d.LogFiles(ctx, args[0])
		if err != nil {
			return err
		}
		var rows [][]string
		for _, f := range files {
			rows = append(rows, []string{f.Name, strconv.FormatInt(f.Size, 10), f.Modified.Format(time.RFC3339)})
		}
		return a.rows("NAME BYTES MODIFIED", rows)
	})
	f := c.Flags()
	f.StringVar(&stream, "stream", "stdout", "stdout, stderr, log (the file of logPath written to last) or log/NAME")
	f.IntVar(&bytes, "bytes", 64<<10, "how much of what is there")
	f.BoolVarP(&follow, "follow", "f", false, "go on with what is written, until nothing of the task runs")
	f.BoolVar(&list, "list", false, "list the files of logPath instead")
	_ = c.RegisterFlagCompletionFunc("stream", cobra.FixedCompletions([]string{"stdout", "stderr", "log"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return c
}

func (a *asker) info() *cobra.Command {
	c := a.runs(&cobra.Command{
		Use: "info", Short: "Show the daemon that runs: version, directories, how it tracks processes, troubles", Args: noArguments,
		Long: `Shows the daemon that runs: its version and that of its API, its directories, how it holds processes
together and limits them, its keeper, and what it found damaged or cannot use.`,
		Example: "  tandem-processd info\n  tandem-processd info -o json",
	}, func(cmd *cobra.Command, d *client.Client, _ []string) error {
		ctx := cmd.Context()
		i, err := d.Info(ctx)
		if err != nil {
			return err
		}
		if a.output == asJSON {
			return a.json(i)
		}
		fmt.Fprintf(a.out, "version    %s, API %s, pid %d\ntracking   %s\nwork       %s\nrun        %s\n", i.Version, i.API, i.Pid, i.Tracking, i.WorkBaseDir, i.RunBaseDir)
		if k := i.Keeper; k != nil {
			fmt.Fprintf(a.out, "keeper     pid %d, version %s, parent of %d processes\n", k.Pid, k.Version, k.Processes)
		}
		for _, text := range i.Troubles {
			fmt.Fprintf(a.out, "trouble    %s\n", term.Clean(text))
		}
		return nil
	})
	a.outputFlag(c)
	return c
}
