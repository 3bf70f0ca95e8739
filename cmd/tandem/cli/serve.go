package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"tandem/cmd/tandem/exit"
	"tandem/cmd/tandem/local"
	"tandem/localmesos/cmdexec"
	mesos "tandem/localmesos/command"
	scheduler "tandem/scheduler/command"
)

// serveCommands are those that run servers.
func (a *app) serveCommands() []*cobra.Command {
	return []*cobra.Command{a.localCommand(), a.server(scheduler.NewCommand()), a.mesosCommand()}
}

func (a *app) localCommand() *cobra.Command {
	o := local.Defaults(a.getenv)
	dataDir := o.DataDir
	o.DataDir = ""
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Run the whole stack on this machine, until Ctrl-C",
		Long: `Runs the whole stack on this machine: an embedded Mesos master, one or several simulated
agents, the scheduler, and tandem-processd. Executors are the real tandem-executor. It is for
one machine and for tests; a cluster runs the same programs on Apache Mesos and ZooKeeper.

Agents get the addresses 127.0.0.1, 127.0.0.2 and so on, each with a range of ports of its
own: 31000-31999, 32000-32999, ... --attributes and --resources may be given once for each
agent; fewer are used in turn. What --resources does not name is taken from the machine.

Ctrl-C (or SIGTERM, or the end of the terminal) stops all that runs, waits for it and ends;
a second one ends at once. Under nohup the end of the terminal changes nothing.
What was applied is remembered and started again by the next "tandem local" on the same data
directory. With --keep, tasks go on when the stack ends, and the next start, within 15
minutes, takes them up. A stack that was killed is taken up by the next start in the same way.

Container tasks need a Docker Engine (at DOCKER_HOST); processes need nothing.`,
		Example: `  tandem local
  tandem local --agents 3 --attributes 'zone:a;rack:r1' --attributes 'zone:b;rack:r2'
  tandem local --data-dir ./data --listen 127.0.0.1:8080 --master-port 6050 --agent-port 6051`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.DataDir == "" && !cmd.Flags().Changed("data-dir") {
				o.DataDir = dataDir
			}
			return local.Run(cmd.Context(), o, a.out, a.err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Agents, "agents", o.Agents, fmt.Sprintf("`number` of simulated agents, at most %d", local.MaxAgents))
	f.StringArrayVar(&o.Attributes, "attributes", nil, "`attributes` of an agent, such as 'zone:a;rack:r1'; once for each agent, or used in turn")
	f.StringArrayVar(&o.Resources, "resources", nil, "`resources` of an agent, such as 'cpus:4;mem:4096'; once for each agent, or used in turn")
	f.StringVar(&o.DataDir, "data-dir", "", "`directory` for all that is kept (TANDEM_DATA_DIR; otherwise /var/lib/tandem/local for root, ~/.local/share/tandem for others)")
	f.StringVar(&o.Listen, "listen", o.Listen, "`address` of the scheduler's HTTP API")
	f.IntVar(&o.MasterPort, "master-port", o.MasterPort, "`port` of the Mesos master, on 127.0.0.1")
	f.IntVar(&o.AgentPort, "agent-port", o.AgentPort, "`port` of the Mesos agents, each on its own address")
	f.BoolVar(&o.Keep, "keep", false, "leave tasks running when the stack ends, for the next start to take up")
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "show the servers' log on standard error, too")
	_ = cmd.MarkFlagDirname("data-dir") // the flag is there
	return cmd
}

func (a *app) mesosCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mesos",
		Short: "Run an embedded Mesos master or agent",
		Long: `Runs a Mesos-compatible master or agent as a process of its own, with Apache Mesos's flag
names (dashes work, too). "tandem local" runs both in one process. They are for one machine
and for tests; a cluster runs Apache Mesos.`,
		Example: `  tandem mesos master --ip=127.0.0.1 --port=5050 --work_dir=/tmp/master
  tandem mesos agent --ip=127.0.0.1 --port=5051 --master=127.0.0.1:5050 --work_dir=/tmp/agent`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range []*cobra.Command{mesos.NewMasterCommand(), mesos.NewAgentCommand()} {
		cmd.AddCommand(a.server(sub))
	}
	cmd.AddCommand(a.mesosTools()...)
	cmd.AddCommand(&cobra.Command{
		Use:    "command-executor",
		Short:  "Run a command task; agents start this",
		Hidden: true,
		Args:   exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			// It has written to its log what there is to say.
			return exit.Silent(exit.Code(cmdexec.Main()))
		},
	})
	return cmd
}

// server fits a command from another package into this tree: its log goes to
// standard error, its arguments are checked as everywhere, and its errors get
// exit codes.
func (a *app) server(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	if !cmd.Hidden {
		cmd.Args = exactArgs()
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		slog.SetDefault(slog.New(slog.NewTextHandler(a.err, nil)))
		return serverError(run(cmd, args))
	}
	return cmd
}

// serverError tells what kind of failure ended a server.
func serverError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EADDRINUSE):
		return exit.With(exit.Refused, err)
	case strings.Contains(err.Error(), "flags:"), strings.Contains(err.Error(), "--"):
		return exit.With(exit.Usage, err)
	}
	return err
}
