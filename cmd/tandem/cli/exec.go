package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/internal/execstream"
	"tandem/scheduler/wire"
)

func (a *app) execCommand() *cobra.Command {
	var to recipients
	var stdin, tty bool
	cmd := &cobra.Command{
		Use:   "exec TASKGROUP -- COMMAND...",
		Short: "Run a command in a running container",
		Long: `Runs a command in a running container, as the container's user and with its environment, shows
what it writes, and exits with its exit code. A taskgroup with several tasks needs --task. With
-i the command gets the standard input, with -t a terminal; -it makes a shell usable.

The agent's operator may forbid sessions (exec: false in /etc/tandem/executor.yaml). They are not
encrypted between scheduler and agent, so agents at other than loopback addresses allow them only
with exec: true.`,
		Example: `  tandem exec web-0 -n test -- ls -l /data
  tandem exec web-0 -n test --task nginx -it -- /bin/sh`,
		Args:              minArgs(2, "TASKGROUP -- COMMAND"),
		ValidArgsFunction: a.completeLogs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 {
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
	screen, isFile := a.in.(*os.File)
	screenIsTerminal := isFile && term.IsTerminal(int(screen.Fd()))
	if req.TTY && screenIsTerminal {
		if w, h, err := term.GetSize(int(screen.Fd())); err == nil {
			req.Width, req.Height = uint16(w), uint16(h)
		}
	}
	conn, err := b.Exec(ctx, src.group.Namespace, src.group.ID, req)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	out := execstream.NewWriter(conn)
	if req.TTY && screenIsTerminal {
		before, err := term.MakeRaw(int(screen.Fd()))
		if err != nil {
			return fmt.Errorf("set the terminal to raw mode: %w", err)
		}
		defer func() { _ = term.Restore(int(screen.Fd()), before) }() // nothing else could be done
		defer followSize(screen, out)()
	}
	if req.Stdin {
		// It is not waited for: reading a terminal cannot be given up. It ends with the program.
		go func() {
			if _, err := io.Copy(out.To(execstream.Stdin), a.in); err == nil {
				_ = out.Send(execstream.Stdin, nil) // one that has ended needs no end of its input
			}
		}()
	}
	err = a.show(execstream.NewReader(conn))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// show writes what comes, to its end, and returns the exit code as an error.
func (a *app) show(r *execstream.Reader) error {
	for {
		k, payload, err := r.Next()
		if err != nil {
			return fmt.Errorf("the session has broken off, and how the command ends is not known: %w", err)
		}
		switch k {
		case execstream.Stdout:
			_, err = a.out.Write(payload)
		case execstream.Stderr:
			_, err = a.err.Write(payload)
		case execstream.Ended:
			var end execstream.End
			if err := json.Unmarshal(payload, &end); err != nil {
				return fmt.Errorf("the end of the session is not understood: %w", err)
			}
			if end.Error != "" {
				return errors.New(strings.TrimSpace(end.Error))
			}
			return exit.Silent(exit.Code(end.Code))
		default:
			return fmt.Errorf("the session brought a frame of kind %d, which is none of its output", k)
		}
		if err != nil {
			return err
		}
	}
}

// followSize tells of the terminal's new sizes until the returned function is called.
func followSize(screen *os.File, out *execstream.Writer) func() {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-changed:
				if w, h, err := term.GetSize(int(screen.Fd())); err == nil {
					_ = out.SendJSON(execstream.Resize, execstream.Size{Width: uint16(w), Height: uint16(h)}) // the reader notices the end
				}
			case <-end:
				return
			}
		}
	}()
	return func() { signal.Stop(changed); close(end); <-done }
}
