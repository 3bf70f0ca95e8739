package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tandem/processdaemon/client"
)

// asking are the commands that ask a daemon that runs.
func asking(o *options, stdout io.Writer) []*cobra.Command {
	var owner, stream string
	var bytes int
	var follow, list bool
	tasks := &cobra.Command{
		Use: "tasks", Short: "List the tasks of the daemon that runs", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(cmd.Flags()); err != nil {
				return err
			}
			c := client.New(o.socket)
			defer c.Close()
			all, err := c.List(cmd.Context(), owner)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tSTATE\tPID\tRESTARTS\tSTARTED")
			for _, s := range all {
				started := "-"
				if !s.StartedAt.IsZero() {
					started = s.StartedAt.Format(time.RFC3339)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", s.ID, s.Name, s.State, s.Pid, s.Restarts, started)
			}
			return w.Flush()
		},
	}
	tasks.Flags().StringVar(&owner, "owner", "", "only those of this executor")
	logs := &cobra.Command{
		Use: "logs ID", Short: "Show what a task wrote, to its output or to its logPath",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("want the id of one task, not %q; tandem-processd tasks lists them", args)}
			}
			return nil
		},
		Example: "  tandem-processd logs -f ID\n  tandem-processd logs --list ID\n  tandem-processd logs --stream log/mongod.log ID",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.settle(cmd.Flags()); err != nil {
				return err
			}
			if bytes < 1 {
				return usageError{fmt.Errorf("--bytes %d: want a positive number", bytes)}
			}
			c := client.New(o.socket)
			defer c.Close()
			if !list {
				return c.Logs(cmd.Context(), args[0], stream, bytes, follow, stdout)
			}
			files, err := c.LogFiles(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tBYTES\tMODIFIED")
			for _, f := range files {
				fmt.Fprintf(w, "%s\t%d\t%s\n", f.Name, f.Size, f.Modified.Format(time.RFC3339))
			}
			return w.Flush()
		},
	}
	f := logs.Flags()
	f.StringVar(&stream, "stream", "stdout", "stdout, stderr, log (the file of logPath written to last) or log/NAME")
	f.IntVar(&bytes, "bytes", 64<<10, "how much of what is there")
	f.BoolVarP(&follow, "follow", "f", false, "go on with what is written, until nothing of the task runs")
	f.BoolVar(&list, "list", false, "list the files of logPath instead")
	return []*cobra.Command{tasks, logs}
}
