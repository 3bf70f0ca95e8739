package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tandem/internal/term"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// exitError is the exit code of a command, which the program ends with.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func (a *asker) exec() *cobra.Command {
	var req protocol.SessionRequest
	c := a.runs(&cobra.Command{
		Use: "exec ID -- COMMAND...", Short: "Run a command beside a running task, as its user and within its limits",
		Long: `Runs a command beside a running task: as its user, in its workPath, with its environment and within its limits;
shows what the command writes, and exits with its exit code. With -i it gets the standard input, with -t a
terminal of the size of this one. It ends with its connection.`,
		Example:           "  tandem-processd exec ID -- ls -l\n  tandem-processd exec ID -it -- sh",
		ValidArgsFunction: a.completeIDs(false),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || cmd.ArgsLenAtDash() > 1 {
				return usageError{fmt.Errorf("want the id of a task and a command; usage: %s", cmd.UseLine())}
			}
			return nil
		},
	}, func(cmd *cobra.Command, d *client.Client, args []string) error {
		ctx := cmd.Context()
		req.Argv = args[1:]
		t := client.Terminal{Stdout: a.out, Stderr: a.err}
		if req.Stdin {
			t.Stdin = cmd.InOrStdin()
		}
		if req.TTY {
			screen, ok := term.IsTerminal(cmd.InOrStdin())
			if !ok {
				return usageError{errors.New("-t needs a terminal as the standard input, and that is none: leave -t out")}
			}
			req.Width, req.Height = term.Size(screen)
			var restore func()
			var err error
			if ctx, restore, err = term.Session(ctx, screen, &t); err != nil {
				return err
			}
			defer restore()
		}
		code, err := d.Session(ctx, args[0], req, t)
		if err != nil {
			return err
		}
		if code != 0 {
			return exitError(code)
		}
		return nil
	})
	c.Flags().BoolVarP(&req.Stdin, "stdin", "i", false, "pass the standard input on")
	c.Flags().BoolVarP(&req.TTY, "tty", "t", false, "give the command a terminal")
	return c
}
