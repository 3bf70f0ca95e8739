package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/internal/execstream"
	"tandem/internal/term"
	"tandem/scheduler/wire"
)

func (a *app) execCommand() *cobra.Command {
	var to recipients
	var stdin, tty bool
	cmd := &cobra.Command{
		Use:   "exec TASKGROUP -- COMMAND...",
		Short: "Run a command in a running task",
		Long: `Runs a command in a running container, as the container's user and with its environment, or beside
a running process, as its user, in its workPath, with its environment and within its limits; shows
what the command writes, and exits with its exit code. A taskgroup with several tasks needs --task.
With -i the command gets the standard input, with -t a terminal, which has the size of this one; -it
makes a shell usable. The command ends with its connection.

The agent's operator may forbid sessions (exec: false in /etc/tandem/executor.yaml). They are not
encrypted between scheduler and agent, so agents at other than loopback addresses allow them only
with exec: true.`,
		Example: `  tandem exec web-0 -n test -- ls -l /data
  tandem exec web-0 -n test --task nginx -it -- /bin/sh`,
		Args:              minArgs(1, "TASKGROUP"),
		ValidArgsFunction: a.completeLogs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return exit.Errorf(exit.Usage, "write one taskgroup before --, and the command after it; usage: %s", cmd.UseLine())
			}
			req := wire.ExecRequest{ExecRequest: api.ExecRequest{Command: args[1:], Stdin: stdin, TTY: tty}}
			return a.exec(cmd.Context(), &to, args[0], req)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&stdin, "stdin", "i", false, "pass the standard input on")
	f.BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	to.taskFlags(a, cmd)
	return cmd
}

func (a *app) exec(ctx context.Context, to *recipients, arg string, req wire.ExecRequest) error {
	b, sources, err := to.find(ctx, a, arg)
	if err != nil {
		return err
	}
	if len(sources) > 1 {
		return exit.Errorf(exit.Usage, "%q are %d taskgroups: name one, such as %s", arg, len(sources), sources[0].group.Name)
	}
	src := sources[0]
	if src.group.ID == "" {
		return exit.Errorf(exit.Refused, "taskgroup %s does not run: %s", src.group.Name, why(src.group))
	}
	req.Task = src.task.ID
	screen, isTerminal := term.IsTerminal(a.in)
	if req.TTY && !isTerminal {
		return exit.Errorf(exit.Usage, "-t needs a terminal as the standard input, and that is none: leave -t out, or run tandem in a terminal")
	}
	if req.TTY {
		req.Width, req.Height = term.Size(screen)
	}
	conn, err := b.Exec(ctx, src.group.Namespace, src.group.ID, req)
	if err != nil {
		return err
	}
	t := execstream.Terminal{Stdout: a.out, Stderr: a.err}
	if req.Stdin {
		t.Stdin = a.in
	}
	if req.TTY {
		var restore func()
		if ctx, restore, err = term.Session(ctx, screen, &t); err != nil {
			return errors.Join(err, conn.Close())
		}
		defer restore()
	}
	code, err := execstream.Attach(ctx, conn, t)
	if err != nil {
		return err
	}
	return exit.Silent(exit.Code(code))
}
