package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The values of -o.
const (
	formatTable = "table"
	formatText  = "text"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

// choice is a flag value out of a closed set.
type choice struct {
	value   *string
	choices []string
}

func (c choice) String() string { return *c.value }

// Type is what the help shows as the flag's value.
func (c choice) Type() string { return strings.Join(c.choices, "|") }

func (c choice) Set(v string) error {
	if !slices.Contains(c.choices, v) {
		return fmt.Errorf("use one of %s", strings.Join(c.choices, ", "))
	}
	*c.value = v
	return nil
}

// outputFlag adds -o with its choices; the first is the default.
func outputFlag(cmd *cobra.Command, value *string, choices ...string) {
	*value = choices[0]
	cmd.Flags().VarP(choice{value, choices}, "output", "o", "how to print the result")
	completeFlag(cmd, "output", choices...)
}

// completeFlag gives a flag a fixed list of values for tab completion.
func completeFlag(cmd *cobra.Command, flag string, choices ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist: a mistake in this package
	}
}

// printData prints v as JSON or YAML; both end with a line break.
func (a *app) printData(format string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("render the result: %w", err)
	}
	data = append(data, '\n')
	if format == formatYAML {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return fmt.Errorf("render the result as YAML: %w", err)
		}
	}
	_, err = a.out.Write(data)
	return err
}
