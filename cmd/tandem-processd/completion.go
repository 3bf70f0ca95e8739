package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func completionCommand(stdout io.Writer) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print a script that completes the command lines of tandem-processd with the tab key",
		Long: `Prints the completion script for bash, zsh or fish. Ids of tasks are completed, too, by asking the daemon
(for a moment only).`,
		Example: `  source <(tandem-processd completion bash)
  tandem-processd completion bash > /etc/bash_completion.d/tandem-processd
  tandem-processd completion zsh > "${fpath[1]}/_tandem-processd"`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("name one shell: %v", shells)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(stdout, true)
			}
			return usageError{fmt.Errorf("shell %q: want one of %v", args[0], shells)}
		},
	}
}
