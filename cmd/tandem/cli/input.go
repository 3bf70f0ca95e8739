package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/internal/term"
	"tandem/scheduler"
)

// input is where artifacts come from: -f, several times, and --strict.
type input struct {
	paths  []string
	strict bool
}

func (in *input) flags(cmd *cobra.Command) {
	in.fileFlag(cmd)
	cmd.Flags().BoolVar(&in.strict, "strict", false, "take warnings, such as unknown keys, for errors")
}

func (in *input) fileFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&in.paths, "file", "f", nil, "`FILE` or directory with artifacts in JSON or YAML, or - for the standard input; may be given several times")
}

// read decodes and checks all artifacts. Errors of all files come at once, and
// warnings go to the error stream.
func (in *input) read(a *app, cmd *cobra.Command) ([]api.Document, error) {
	if len(in.paths) == 0 {
		return nil, exit.Errorf(exit.Usage, `nothing to read: give files or directories with -f, or -f - for the standard input; see "%s --help"`, cmd.CommandPath())
	}
	docs, warnings, err := api.DecodePaths(in.paths, a.in, api.Options{Strict: in.strict, Rules: scheduler.Check})
	for _, w := range warnings {
		fmt.Fprintf(a.err, "%s %s\n", a.err.Style(term.Busy, "warning:"), w)
	}
	return docs, badInput(err)
}

// badInput renders all that is wrong with artifacts, one error a line.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	var list api.Errors
	if !errors.As(err, &list) {
		return exit.With(exit.Usage, err)
	}
	if len(list) == 1 {
		return exit.Errorf(exit.Usage, "%w", err)
	}
	return exit.Errorf(exit.Usage, "%s; nothing was changed\n%w", count(len(list), "error"), indented{list})
}

// indented renders each line of an error with two leading blanks.
type indented struct{ error }

func (e indented) Error() string {
	return "  " + strings.ReplaceAll(e.error.Error(), "\n", "\n  ")
}

// count renders "1 error", "2 errors".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func (a *app) validateCommand() *cobra.Command {
	var in input
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check artifacts without a server",
		Long: `Decodes artifacts, sets their defaults and checks them, exactly as "tandem apply" does
before it sends anything. All errors of all files are shown at once, each with its
place and path. No server is needed.`,
		Example: `  tandem validate -f web.json -f services/
  tandem validate --strict -f - < web.yaml`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := in.read(a, cmd)
			if err != nil {
				return err
			}
			for i := range docs {
				fmt.Fprintf(a.out, "%s valid\n", docs[i].Ref())
			}
			return nil
		},
	}
	in.flags(cmd)
	return cmd
}
