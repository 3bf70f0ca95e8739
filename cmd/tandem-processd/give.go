package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

func (a *asker) limits() *cobra.Command {
	var l protocol.Limits
	c := a.runs(&cobra.Command{
		Use: "limits ID", Short: "Change what a running task may use, without a restart", Args: ids(1, 1),
		Long: `Changes what a running task may use, without a restart. What is not named stays as it is; 0 takes a limit
away. The change holds for restarts of the task, too.`,
		Example:           "  tandem-processd limits ID --cpus 0.5 --memory 256\n  tandem-processd limits ID --pids 500",
		ValidArgsFunction: a.completeIDs(false),
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		if cmd.Flags().Changed("pids") && l.Pids == 0 {
			return usageError{errors.New("--pids 0: want a number of processes, or -1 for any number")}
		}
		s, err := d.Status(ctx, args[0])
		if err != nil {
			return err
		}
		now, changed := s.Limits, false
		for name, set := range map[string]func(){
			"cpus": func() { now.CPUs = l.CPUs }, "memory": func() { now.MemMB = l.MemMB }, "cpu-request": func() { now.CPURequest = l.CPURequest }, "pids": func() { now.Pids = l.Pids },
		} {
			if cmd.Flags().Changed(name) {
				set()
				changed = true
			}
		}
		if !changed {
			return usageError{errors.New("name a limit: " + "tandem-processd limits ID --cpus 0.5")}
		}
		if err := d.SetLimits(ctx, args[0], now); err != nil {
			return err
		}
		if s, err = d.Status(ctx, args[0]); err != nil {
			return err
		}
		if a.output == asJSON {
			return a.json(s)
		}
		_, err = fmt.Fprintln(a.out, limitsText(s.Limits))
		return err
	})
	f := c.Flags()
	f.Float64Var(&l.CPUs, "cpus", 0, "`cores` that it may use at most")
	f.Float64Var(&l.MemMB, "memory", 0, "`MiB` of memory that it may use at most")
	f.Float64Var(&l.CPURequest, "cpu-request", 0, "`cores` that it gets when others want them, too")
	f.Int64Var(&l.Pids, "pids", 0, "processes and threads that it may have at most; -1 for any number")
	a.outputFlag(c)
	return c
}

func (a *asker) upload() *cobra.Command {
	var f protocol.File
	var mode string
	c := a.runs(&cobra.Command{
		Use: "upload ID FILE PATH", Short: "Put a file beneath the workPath of a running task", Args: ids(3, 3),
		Long: `Puts FILE (- is the standard input) beneath the workPath of a running task, in one step, under the name PATH.
A file that is replaced lends owner and mode; a new one is the task's user's, with mode 0644.`,
		Example: "  tandem-processd upload ID cache.conf conf/cache.conf --mode 0640",
	}, func(cmd *cobra.Command, d *client.Client, args []string) (err error) {
		ctx := cmd.Context()
		const octal, bits = 8, 32
		if mode != "" {
			n, err := strconv.ParseUint(mode, octal, bits)
			if err != nil || n > 0o777 {
				return usageError{fmt.Errorf("--mode %s: want permission bits in octal, such as 0640", mode)}
			}
			f.Mode = uint32(n)
		}
		if f.Path = args[2]; args[1] == "-" {
			f.Content, err = io.ReadAll(cmd.InOrStdin())
		} else {
			f.Content, err = os.ReadFile(args[1])
		}
		if err != nil {
			return err
		}
		return d.Upload(ctx, args[0], f)
	})
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return a.completeIDs(false)(cmd, args, to)
	}
	c.Flags().StringVar(&mode, "mode", "", "permission `bits` in octal, such as 0640")
	c.Flags().StringVar(&f.User, "user", "", "account that owns the file")
	return c
}
