package command

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tandem/localmesos/fault"
)

// masterVariable is the environment variable with the master's address.
const masterVariable = "TANDEM_MESOS_MASTER"

// faults is what the fault commands share.
type faults struct {
	master string // address
	output string
}

// NewFaultCommand returns the command "fault" with its sub-commands. Their
// errors wrap those of the package fault.
func NewFaultCommand() *cobra.Command {
	o := &faults{}
	c := &cobra.Command{
		Use:   "fault",
		Short: "Break an embedded Mesos master or agent on purpose",
		Long: `Breaks an embedded Mesos master or agent on purpose, to see what a framework does about it.

It needs a master and agents that were started with --enable-faults, on this machine. TARGET
is "master", or an agent: its id, host name or host:port. Every fault ends after its --for,
` + fault.DefaultFor.String() + ` unless told otherwise and ` + fault.MaxFor.String() + ` at most, and with the process that it is in. "list" shows what
is in force, "clear" ends it. The log of the master or agent tells of every fault, and each
time that it strikes.`,
		Example: `  tandem mesos fault cut scheduler                        # once: the framework must subscribe again
  tandem mesos fault cut agent --agent 127.0.0.2 --for 30s  # a partition
  tandem mesos fault drop --task web-0 --state TASK_RUNNING --times 2
  tandem mesos fault freeze master --for 5s
  tandem mesos fault reboot 127.0.0.2
  tandem mesos fault list
  tandem mesos fault clear`,
		Args: words("fault", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	master := os.Getenv(masterVariable)
	if master == "" {
		master = "127.0.0.1:5050"
	}
	c.PersistentFlags().StringVar(&o.master, "master", master, "`address` of the master, host:port ("+masterVariable+")")
	c.PersistentFlags().StringVarP(&o.output, "output", "o", "table", "`format` of the result: table or json")
	_ = c.RegisterFlagCompletionFunc("master", cobra.NoFileCompletions)                                    // the flag is there
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, noFiles)) // as above
	for _, s := range streamFaults() {
		c.AddCommand(o.add(s))
	}
	for _, s := range processFaults() {
		c.AddCommand(o.add(s))
	}
	c.AddCommand(o.listCommand(), o.clearCommand(), o.endCommand("thaw", fault.Freeze, true), o.endCommand("resume-offers", fault.PauseOffers, false))
	return c
}

const noFiles = cobra.ShellCompDirectiveNoFileComp

// words checks the number of arguments; use names them.
func words(use string, least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%w arguments: %q needs %d, there are %d; usage: %s", fault.ErrInvalid, use, least, len(args), cmd.UseLine())
		case len(args) > most:
			return fmt.Errorf("%w argument %q; usage: %s", fault.ErrInvalid, args[most], cmd.UseLine())
		}
		return nil
	}
}

// show prints what was done, for people or as JSON.
func (o *faults) show(cmd *cobra.Command, v any, text string) error {
	switch o.output {
	case "json":
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), string(b))
	case "table":
		fmt.Fprint(cmd.OutOrStdout(), text)
	default:
		return o.checkOutput()
	}
	return nil
}

func (o *faults) checkOutput() error {
	if o.output != "json" && o.output != "table" {
		return fmt.Errorf("--output %q: %w: use table or json", o.output, fault.ErrInvalid)
	}
	return nil
}

func (o *faults) listCommand() *cobra.Command {
	var on string
	var past bool
	c := &cobra.Command{
		Use:   "list",
		Short: "Show the faults in force",
		Long:  `Shows the faults in force on the master and all agents, or on one of them.`,
		Example: `  tandem mesos fault list
  tandem mesos fault list --on 127.0.0.2 --past
  tandem mesos fault list -o json`,
		Args: words("list", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			all, err := o.statuses(cmd.Context(), on)
			if err != nil {
				return err
			}
			return o.show(cmd, all, faultTable(all, past, time.Now()))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().StringVar(&on, "on", "", "only those on this `target`")
	c.Flags().BoolVar(&past, "past", false, "show those that are over, too")
	_ = c.RegisterFlagCompletionFunc("on", o.completeTargets(true)) // the flag is there
	return c
}

// faultTable is the list for people.
func faultTable(all []fault.Status, past bool, now time.Time) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows := 0
	fmt.Fprintln(w, "ON\tID\tFAULT\tHITS\tLEFT")
	for _, s := range all {
		list := s.Active
		if past {
			list = append(append([]fault.Fault{}, s.Past...), s.Active...)
		}
		for _, f := range list {
			left := f.Ended
			if left == "" {
				left = f.Until.Sub(now).Round(100 * time.Millisecond).String()
			}
			rows++
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\n", s.Name, f.ID, f, f.Hits, left)
		}
	}
	if rows == 0 {
		return "no faults\n"
	}
	w.Flush()
	return b.String()
}

func (o *faults) clearCommand() *cobra.Command {
	var on string
	c := &cobra.Command{
		Use:   "clear [ID]",
		Short: "End faults before their time",
		Long: `Ends all faults on the master and all agents, all on one of them (--on), or one fault by its
number, which is on the master unless --on says otherwise.`,
		Example: `  tandem mesos fault clear
  tandem mesos fault clear --on 127.0.0.2
  tandem mesos fault clear 3`,
		Args: words("clear", 0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			if len(args) == 1 {
				return o.clearOne(cmd, on, args[0])
			}
			n, err := o.clearAll(cmd.Context(), on)
			if err != nil {
				return err
			}
			return o.show(cmd, fault.Cleared{Cleared: n}, fmt.Sprintf("%d cleared\n", n))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().StringVar(&on, "on", "", "only those on this `target`")
	_ = c.RegisterFlagCompletionFunc("on", o.completeTargets(true)) // the flag is there
	return c
}

func (o *faults) clearOne(cmd *cobra.Command, on, number string) error {
	id, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("%w number of a fault: %q; see \"tandem mesos fault list\"", fault.ErrInvalid, number)
	}
	client, err := o.client(cmd.Context(), on)
	if err == nil {
		err = client.Clear(cmd.Context(), id)
	}
	if err != nil {
		return err
	}
	return o.show(cmd, fault.Cleared{Cleared: 1}, "1 cleared\n")
}

// endCommand is a command that ends all faults of a kind on a target.
func (o *faults) endCommand(name string, kind fault.Kind, target bool) *cobra.Command {
	use, example, most := name, "  tandem mesos fault "+name, 0
	if target {
		use, example, most = name+" TARGET", "  tandem mesos fault "+name+" 127.0.0.2:5051", 1
	}
	return &cobra.Command{
		Use:     use,
		Short:   fmt.Sprintf("End %s before its time", kind),
		Long:    fmt.Sprintf("Ends the fault %q before its time.", kind),
		Example: example,
		Args:    words(name, most, most),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			on := ""
			if target {
				on = args[0]
			}
			client, err := o.client(cmd.Context(), on)
			if err != nil {
				return err
			}
			n, err := client.ClearKind(cmd.Context(), kind)
			if err != nil {
				return err
			}
			return o.show(cmd, fault.Cleared{Cleared: n}, fmt.Sprintf("%d cleared\n", n))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == most {
				return nil, noFiles
			}
			return o.completeTargets(true)(cmd, args, word)
		},
	}
}
