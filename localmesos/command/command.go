// Package command makes the commands that run an embedded Mesos master or agent
// as a process of its own, with Apache Mesos's flag names. It is for the tandem
// binary, which mounts them; it must hold no logic of master or agent.
package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tandem/localmesos/master"
)

// NewMasterCommand returns the command "master".
func NewMasterCommand() *cobra.Command {
	flags := master.DefaultFlags()
	c := &cobra.Command{
		Use:   "master",
		Short: "Run a Mesos-compatible master for one machine",
		Long: `Run a Mesos-compatible master for one machine and for tests.

It speaks the v1 scheduler API of Apache Mesos and takes its flags, with
underscores or dashes. For a cluster run Apache Mesos.`,
		Example: `  tandem mesos master --work_dir=/var/lib/tandem/mesos-master
  tandem mesos master --ip=127.0.0.1 --port=5050 --registry=in_memory
  tandem mesos master --work-dir ./master --agent-ping-timeout 1secs --max-agent-ping-timeouts 3`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			flags.Logger = slog.Default()
			warn(c, master.Ignored(c.Flags()))
			m, err := master.New(flags)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(c)
			defer stop()
			if err := m.Start(ctx); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "mesos master at %s\n", m.URL())
			<-ctx.Done()
			return m.Close()
		},
	}
	flags.Register(c.Flags())
	return c
}

func warn(c *cobra.Command, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(c.ErrOrStderr(), "warning: "+line)
	}
}

// untilSignal is a context that ends with SIGINT, SIGTERM or the command's own.
func untilSignal(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
