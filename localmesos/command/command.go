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

	"tandem/localmesos/agent"
	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/master"
)

// NewMasterCommand returns the command "master".
func NewMasterCommand() *cobra.Command {
	flags := master.DefaultFlags()
	self := newProcess()
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
			flags.Logger, flags.Supervise = slog.Default(), self.do
			flags.SSL = ssl.FromEnvironment(os.Environ())
			warn(c, master.Ignored(c.Flags()))
			if err := self.wait(c); err != nil {
				return err
			}
			m, err := master.New(flags)
			if err != nil {
				return err
			}
			self.url = m.URL
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
	self.register(c)
	return c
}

// NewAgentCommand returns the command "agent".
func NewAgentCommand() *cobra.Command {
	flags := agent.DefaultFlags()
	self := newProcess()
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run a Mesos-compatible agent for one machine",
		Long: `Run a Mesos-compatible agent for one machine and for tests.

It starts executors as processes in sandboxes below the work directory, speaks
the v1 executor API of Apache Mesos and takes its flags, with underscores or
dashes. It talks to the master of this program only. SIGTERM and SIGINT end the
agent and leave executors of frameworks that checkpoint to the next agent;
SIGUSR1 ends all executors first and gives the agent's id up.`,
		Example: `  tandem mesos agent --master=127.0.0.1:5050 --work_dir=/var/lib/tandem/mesos-agent
  tandem mesos agent --master=127.0.0.1:5050 --work-dir ./agent --ip 127.0.0.2 --hostname node-2 \
    --resources='cpus:4;mem:4096;disk:10240;ports:[31000-32000]' --attributes='zone:a;rack:r1'`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			flags.Logger, flags.Supervise = slog.Default(), self.do
			flags.SSL = ssl.FromEnvironment(os.Environ())
			warn(c, agent.Ignored(c.Flags()))
			if err := self.wait(c); err != nil {
				return err
			}
			a, err := agent.New(flags)
			if err != nil {
				return err
			}
			self.url, self.powerOff = a.URL, a.PowerOff
			ctx, stop := untilSignal(c)
			defer stop()
			leave := make(chan os.Signal, 1)
			signal.Notify(leave, syscall.SIGUSR1)
			defer signal.Stop(leave)
			if err := a.Start(ctx); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "mesos agent at %s\n", a.URL())
			select {
			case <-ctx.Done():
				return a.Close()
			case <-leave:
				return a.Shutdown(ctx)
			case <-a.Done():
				self.settle()
				return a.Err()
			}
		},
	}
	flags.Register(c.Flags())
	c.Flags().BoolVar(&flags.EnableFaults, "enable_faults", flags.EnableFaults, "let \"tandem mesos fault\" break the agent on purpose, for tests")
	self.register(c)
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
