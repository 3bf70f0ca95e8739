package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"tandem/api"
)

// readConfig sets every flag that has no value yet from the YAML file at path:
// one mapping, whose keys are the flags' names. It tells all errors of the file at
// once. A file that is not there is an error when somebody asked for it.
func readConfig(path string, asked bool, f *pflag.FlagSet, from map[string]string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", flagConfig, err)
	}
	var root yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&root); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: it has more than one document; write one", path)
	}
	top := root.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: it is no mapping; write lines such as data-dir: /srv/tandem", path, top.Line)
	}
	var errs []error
	seen := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if err := setFlag(key.Value, value, seen, f, from); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", path, key.Line, key.Value, err))
		}
		seen[key.Value] = key.Line
	}
	return errors.Join(errs...)
}

func setFlag(name string, value *yaml.Node, seen map[string]int, f *pflag.FlagSet, from map[string]string) error {
	fl := f.Lookup(name)
	switch {
	case fl == nil || !isKey(name):
		return fmt.Errorf("unknown key%s", nearestKey(name, f))
	case seen[name] != 0:
		return fmt.Errorf("it is given twice, first in line %d", seen[name])
	case value.Kind != yaml.ScalarNode || value.Tag == "!!null":
		return fmt.Errorf("want one value: %s", fl.Value.Type())
	case from[name] != "":
		// Even so it must be right: the flag may be gone tomorrow.
		return try(fl, value.Value)
	}
	if err := fl.Value.Set(value.Value); err != nil {
		return wrongValue(fl, value.Value, err)
	}
	from[name] = "file"
	return nil
}

// try sets a flag and gives it its value back.
func try(fl *pflag.Flag, text string) error {
	old := fl.Value.String()
	err := fl.Value.Set(text)
	if back := fl.Value.Set(old); back != nil {
		return back
	}
	if err != nil {
		return wrongValue(fl, text, err)
	}
	return nil
}

func wrongValue(fl *pflag.Flag, text string, err error) error {
	return fmt.Errorf("%q is no %s: %w", text, fl.Value.Type(), err)
}

// isKey tells whether a flag is the daemon's, and not one of a command or of the
// program's frame.
func isKey(name string) bool {
	var o options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags(f)
	return name != flagConfig && f.Lookup(name) != nil
}

func nearestKey(name string, f *pflag.FlagSet) string {
	var known []string
	f.VisitAll(func(fl *pflag.Flag) {
		if isKey(fl.Name) {
			known = append(known, fl.Name)
		}
	})
	if near := api.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return "; known are " + strings.Join(known, ", ")
}

// configCommand shows what the daemon would run with.
func configCommand(o *options, stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: flagConfig, Short: "Check or print what the daemon would run with, with the same flags",
		Long: "Checks or prints what the daemon would run with. Both take the daemon's flags."}
	cmd.AddCommand(&cobra.Command{
		Use: "check", Short: "Tell what is wrong with flags, environment and file, and exit", Args: noArguments,
		Long: "Tells all that is wrong with flags, environment and file at once, and exits with 2; with 0 when nothing is.\nThe accounts that they name must be known on this machine.", Example: "  tandem-processd config check --config new.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.settle(cmd.Flags()), o.accounts()); err != nil {
				return usageError{err}
			}
			return nil
		},
	}, &cobra.Command{
		Use: "print", Short: "Print all values as a configuration file, each with its origin, and exit", Args: noArguments,
		Long: "Prints all values as a configuration file, each with its origin: flag, variable, file or default.", Example: "  tandem-processd config print > /etc/tandem/processd.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(cmd.Flags()); err != nil {
				return err
			}
			return o.print(cmd.Flags(), stdout)
		},
	})
	return cmd
}

func (o *options) print(f *pflag.FlagSet, w io.Writer) error {
	doc := yaml.Node{Kind: yaml.MappingNode}
	f.VisitAll(func(fl *pflag.Flag) {
		if !isKey(fl.Name) {
			return
		}
		origin := o.from[fl.Name]
		if origin == "" {
			origin = "default"
		}
		value := yaml.Node{Kind: yaml.ScalarNode, Value: fl.Value.String(), LineComment: origin}
		if fl.Value.Type() == "string" {
			value.Tag = "!!str"
		}
		doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: fl.Name}, &value)
	})
	b, err := yaml.Marshal(&doc)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}
