package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"tandem/internal/version"
)

func (a *app) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Long:  `Prints version, commit, the commit's date, the Go toolchain and the platform.`,
		Example: `  tandem version
  tandem version -o json`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if format == formatTable {
				fmt.Fprintf(a.out, "tandem %s\n", version.String())
				return nil
			}
			return a.printData(format, version.Get())
		},
	}
	outputFlag(cmd, &format, formatTable, formatJSON, formatYAML)
	return cmd
}
