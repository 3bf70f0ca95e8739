package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/internal/term"
	"tandem/scheduler/wire"
)

func (a *app) applyCommand() *cobra.Command {
	var (
		in     input
		s      scope
		w      waiting
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Declare what shall run",
		Long: `Declares the objects in artifacts: creates what is new and changes what is different.
All artifacts are decoded and checked first; when anything is wrong with any of them,
nothing is changed. Applying the same again changes nothing.`,
		Example: `  tandem apply -f examples/ --wait --timeout 2m
  tandem apply -f web.json -f web-service.yaml
  generate | tandem apply -f -
  tandem apply -f web.json --dry-run`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return err
			}
			docs, err := in.read(a, cmd)
			if err != nil {
				return err
			}
			b, err := s.backend(a)
			if err != nil {
				return err
			}
			raws := make([]json.RawMessage, len(docs))
			refs := make([]api.Ref, len(docs))
			for i := range docs {
				raws[i], refs[i] = docs[i].Raw, docs[i].Ref()
			}
			changes, err := b.Apply(cmd.Context(), raws, dryRun, in.strict)
			if err != nil {
				return err
			}
			for _, c := range changes {
				style := term.Good
				if c.Action == wire.Unchanged {
					style = term.Dim
				}
				suffix := ""
				if dryRun {
					suffix = " (dry run)"
				}
				fmt.Fprintf(a.out, "%s %s%s\n", c.Ref, a.out.Style(style, c.Action), suffix)
			}
			if !w.wait || dryRun {
				return nil
			}
			return w.until(cmd.Context(), a, settled(b, workloads(refs)))
		},
	}
	in.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	w.flags(cmd, "everything runs as declared")
	s.serverFlag(cmd)
	return cmd
}
