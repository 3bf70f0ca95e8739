// Command tandem-processd is the daemon of an agent that owns its plain
// processes and cleans up after executors that died.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tandem/internal/version"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/unpack"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	if keeper.Asked() {
		os.Exit(keeper.Main())
	}
	if unpack.Asked() {
		os.Exit(unpack.Main())
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// usageError marks what the caller of the program got wrong.
type usageError struct{ error }

func run(args []string, stdout, stderr io.Writer) int {
	cmd := command(stdout, stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.Execute()
	var usage usageError
	var code exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "tandem-processd: %v; see tandem-processd --help\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "tandem-processd: %v\n", err)
	return exitFailure
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

func command(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "tandem-processd",
		Short: "Own the plain processes of a Mesos agent",
		Long: `tandem-processd starts, watches and stops the processes of the taskgroups on an agent, and
removes what executors leave behind that die. One runs on every agent, as root.

On SIGTERM or SIGINT it stops serving and leaves the processes running; the next one on the same
data directory takes them up again, as it does after a crash. With --kill-on-exit it stops them first.
On SIGUSR2 it is replaced by the program that is at its path then, with the same arguments and a fresh
look at the configuration; no request is refused meanwhile. On SIGHUP it reads the log's level again.

Every flag but --config is a key of the configuration file, without its dashes: "data-dir: /srv/tandem".

Its other commands ask a daemon that runs, for the people on the agent.

Exit codes: 0 ended by a signal or done, 1 failure, 2 wrong flags; exec has those of its command.`,
		Example: `  tandem-processd --data-dir /srv/tandem --group mesos
  tandem-processd --data-dir /tmp/t --socket /tmp/t/processd.sock --kill-on-exit
  tandem-processd tasks`,
		Args:         noArguments,
		SilenceUsage: true, SilenceErrors: true,
		Version: version.String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(cmd.Flags()); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return serve(ctx, &o, stderr)
		},
	}
	cmd.SetContext(context.Background())
	cmd.SetVersionTemplate("tandem-processd {{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(configCommand(&o, stdout), &cobra.Command{
		Use: "version", Short: "Show the version and exit; info shows that of the daemon that runs", Args: noArguments,
		Long: "Shows the version of this program. That of the daemon that runs is shown by info.", Example: "  tandem-processd version",
		Run: func(*cobra.Command, []string) { fmt.Fprintln(stdout, "tandem-processd", version.String()) },
	})
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddGroup(&cobra.Group{ID: groupLook, Title: "Look at the daemon that runs:"}, &cobra.Group{ID: groupChange, Title: "Change its tasks:"})
	cmd.AddCommand(completionCommand(stdout))
	cmd.AddCommand(asking(&o, stdout, stderr)...)
	o.flags(cmd.PersistentFlags())
	return cmd
}
