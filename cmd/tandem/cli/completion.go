package cli

import (
	"github.com/spf13/cobra"

	"tandem/cmd/tandem/exit"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script that completes tandem's command lines with the tab key",
		Long: `Prints the completion script for bash, zsh or fish. Names of kinds, objects and
namespaces are completed too, by asking the scheduler (for a moment only).`,
		Example: `  source <(tandem completion bash)                         # this shell
  tandem completion bash > /etc/bash_completion.d/tandem   # every new shell
  tandem completion zsh > "${fpath[1]}/_tandem"
  tandem completion fish > ~/.config/fish/completions/tandem.fish`,
		Args:      exactArgs("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.out)
			case "fish":
				return cmd.Root().GenFishCompletion(a.out, true)
			}
			return exit.Errorf(exit.Usage, "unknown shell %q; use bash, zsh or fish", args[0])
		},
	}
}
