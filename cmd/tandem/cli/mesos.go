package cli

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"tandem/cmd/tandem/exit"
	mesos "tandem/localmesos/command"
	"tandem/localmesos/fault"
	"tandem/localmesos/scenario"
	runner "tandem/localmesos/scenario/command"
)

// mesosTools are the commands that break an embedded Mesos on purpose.
func (a *app) mesosTools() []*cobra.Command {
	return []*cobra.Command{a.tool(mesos.NewFaultCommand()), a.tool(runner.NewScenarioCommand())}
}

// tool fits a command from another package, with all below it, into this tree.
func (a *app) tool(cmd *cobra.Command) *cobra.Command {
	if cmd.HasSubCommands() {
		cmd.Args = unknownCommand
	}
	check, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error { return toolError(check(cmd, args)) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return toolError(run(cmd, args)) }
	for _, sub := range cmd.Commands() {
		a.tool(sub)
	}
	return cmd
}

// toolError gives an error of a tool its exit code.
func toolError(err error) error {
	var syntax *scenario.SyntaxError
	switch {
	case errors.As(err, &syntax), errors.Is(err, fs.ErrNotExist):
		return exit.With(exit.Usage, err)
	case errors.Is(err, runner.ErrScenarioTimeout):
		return exit.Silent(exit.TimedOut)
	case errors.Is(err, runner.ErrScenario):
		return exit.Silent(exit.Failure)
	}
	for _, x := range []struct {
		is   error
		code exit.Code
	}{
		{fault.ErrUnreachable, exit.Unreachable},
		{fault.ErrUnknown, exit.NotFound},
		{fault.ErrInvalid, exit.Usage},
		{fault.ErrRefused, exit.Refused},
		{fault.ErrDisabled, exit.Refused},
	} {
		if errors.Is(err, x.is) {
			return exit.With(x.code, err)
		}
	}
	return err
}
