package cli

import "github.com/spf13/cobra"

// workCommands are those that talk to a scheduler.
func (a *app) workCommands() []*cobra.Command {
	return []*cobra.Command{
		a.applyCommand(), a.validateCommand(), a.getCommand(), a.describeCommand(), a.scaleCommand(), a.restartCommand(),
		a.deleteCommand(), a.logsCommand(), a.signalCommand(), a.resizeCommand(), a.execCommand(),
		a.uploadCommand(), a.reloadCommand(), a.restartProcessCommand(), a.commitCommand(),
	}
}
