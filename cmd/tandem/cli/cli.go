// Package cli is the tandem command: its commands, flags, output and exit
// codes, for people at a terminal and for scripts.
//
// It holds no logic of its own beyond that: artifacts are decoded by api, the
// scheduler is asked through scheduler/client, and the servers live in their
// own packages. A command must never print half a result as if it were whole,
// and must never show a server's answer without saying what to do about it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/internal/term"
	"tandem/internal/version"
)

// Streams are what a command reads, writes and is told by its surroundings.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
}

// app is what all commands share.
type app struct {
	in       io.Reader
	out, err *term.Output
	getenv   func(string) string
	// args is the command line, for error messages.
	args []string
	// connect makes the client for a scheduler's address; tests replace it.
	connect func(address string) (backend, error)
}

// Main runs the command line args (without the program's name) and returns the exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), term.StopSignals()...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills, whatever hangs
	return int(Run(ctx, args, Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}))
}

// Run is Main with its surroundings given; ctx ends when the user wants it to end.
func Run(ctx context.Context, args []string, s Streams) exit.Code {
	return newApp(s).execute(ctx, args, s)
}

func (a *app) execute(ctx context.Context, args []string, s Streams) exit.Code {
	root := a.root(s)
	a.args = args
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exit.OK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = exit.With(exit.Failure, errors.New("interrupted"))
	}
	if !exit.IsSilent(err) {
		fmt.Fprintf(s.Err, "tandem: %s\n", strings.TrimRight(err.Error(), "\n"))
	}
	return exit.Of(err)
}

// New builds the command tree.
func New(s Streams) *cobra.Command {
	return newApp(s).root(s)
}

func newApp(s Streams) *app {
	return &app{in: s.In, out: term.New(s.Out, s.Getenv), err: term.New(s.Err, s.Getenv), getenv: s.Getenv, connect: connect}
}

// root builds the command tree.
func (a *app) root(s Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "tandem",
		Short: "Run containers and processes side by side on Apache Mesos agents",
		Long: `Tandem runs containers and plain processes side by side on Apache Mesos agents.

"tandem local" starts the whole stack on this machine; the other commands talk to a
scheduler, local or not, at --server (or TANDEM_SERVER, or ` + defaultServer + `).`,
		Example: `  tandem local --agents 3                 # the whole stack, on this machine
  tandem apply -f examples/ --wait        # declare what shall run, wait until it does
  tandem get taskgroups                   # see what runs where
  tandem logs web-0 --follow
  tandem delete -f examples/ --wait`,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetVersionTemplate("tandem {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// What is no command takes its flags along; it is the word that is wrong, not they.
		if first := firstWord(a.args, cmd.CommandPath()); cmd.HasSubCommands() && first != "" {
			return unknownCommand(cmd, []string{first})
		}
		return exit.Errorf(exit.Usage, `%w; see "%s --help"`, err, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Run the stack:"},
		&cobra.Group{ID: groupWork, Title: "Declare and look after what runs:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	for group, commands := range map[string][]*cobra.Command{
		groupServe: a.serveCommands(),
		groupWork:  a.workCommands(),
		groupOther: {a.versionCommand(), a.completionCommand()},
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exit.Help()})
	finish(root)
	return root
}

// The groups in the help of the root command.
const (
	groupServe = "serve"
	groupWork  = "work"
	groupOther = "other"
)

// finish gives every command what none may lack.
func finish(c *cobra.Command) {
	if c.Runnable() && c.HasParent() {
		c.Long = strings.TrimRight(c.Long, "\n") + "\n\n" + exitCodesHint
	}
	c.Flags().SortFlags = false
	for _, sub := range c.Commands() {
		finish(sub)
	}
}

const exitCodesHint = `Exit codes: 0 ok, 1 failure, 2 usage or bad input, 3 scheduler unreachable, 4 not found,
5 timed out, 6 refused (see "tandem help exit-codes").`

// unknownCommand refuses what is no sub-command, naming the nearest one.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if !c.Hidden && c.Runnable() || c.HasSubCommands() {
			names = append(names, c.Name())
		}
	}
	hint := ""
	if near := api.Nearest(args[0], names); near != "" {
		hint = fmt.Sprintf("did you mean %q? ", near)
	}
	return exit.Errorf(exit.Usage, `unknown command %q for %q; %ssee "%s --help" for all commands`,
		args[0], cmd.CommandPath(), hint, cmd.CommandPath())
}

// exactArgs wants as many arguments as there are names, and says which are missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return rangeArgs(len(names), names...)
}

// firstWord is the first argument after the command's own words that is no flag.
func firstWord(args []string, path string) string {
	own := strings.Fields(path)[1:]
	for _, arg := range args {
		switch {
		case strings.HasPrefix(arg, "-"):
		case len(own) > 0 && arg == own[0]:
			own = own[1:]
		default:
			return arg
		}
	}
	return ""
}

// rangeArgs wants the first least of the named arguments and no more than all.
func rangeArgs(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return exit.Errorf(exit.Usage, `missing argument %s; usage: %s`, strings.Join(names[len(args):least], " "), cmd.UseLine())
		case len(args) > len(names):
			return exit.Errorf(exit.Usage, `unexpected argument %q; usage: %s`, args[len(names)], cmd.UseLine())
		}
		return nil
	}
}
