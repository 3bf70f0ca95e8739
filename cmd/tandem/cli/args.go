package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
)

// target is what a command line names: KIND NAME, KIND/NAME or KIND/NAMESPACE/NAME.
type target struct {
	kind kind
	// namespace is empty when none was given.
	namespace, name string
}

// String renders the target as other commands take it.
func (t target) String() string {
	if t.namespace == "" {
		return t.kind.name + "/" + t.name
	}
	return t.kind.name + "/" + t.namespace + "/" + t.name
}

func (t target) ref() api.Ref {
	return api.Ref{Kind: t.kind.declared, Namespace: t.namespace, Name: t.name}
}

// parseTarget reads the target from the first arguments and returns those that
// are left. namespace is the value of -n.
func parseTarget(args []string, namespace string) (target, []string, error) {
	word, rest := args[0], args[1:]
	kindWord, name, slash := strings.Cut(word, "/")
	k, err := lookupKind(kindWord)
	if err != nil {
		return target{}, nil, err
	}
	t := target{kind: k, namespace: namespace}
	switch {
	case slash:
		if ns, n, ok := strings.Cut(name, "/"); ok {
			if namespace != "" && namespace != ns {
				return target{}, nil, exit.Errorf(exit.Usage, "%q names namespace %s, and -n names %s: give one of them", word, ns, namespace)
			}
			t.namespace, name = ns, n
		}
		t.name = name
	case len(rest) > 0:
		t.name, rest = rest[0], rest[1:]
	}
	if t.name == "" || strings.Contains(t.name, "/") {
		return target{}, nil, exit.Errorf(exit.Usage, "no name in %q; write %s NAME or %s/NAME", word, k.name, k.name)
	}
	return t, rest, nil
}

// parseTargets reads a kind and any number of names, or any number of KIND/NAME.
func parseTargets(args []string, namespace string) ([]target, error) {
	var out []target
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			if !strings.Contains(arg, "/") {
				return nil, exit.Errorf(exit.Usage, "%q is not KIND/NAME, as the arguments before are", arg)
			}
			t, _, err := parseTarget([]string{arg}, namespace)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
		return out, nil
	}
	if len(args) == 1 {
		k, err := lookupKind(args[0])
		if err != nil {
			return nil, err
		}
		return nil, exit.Errorf(exit.Usage, "no name is given; write %s NAME or %s/NAME", k.name, k.name)
	}
	for _, name := range args[1:] {
		t, _, err := parseTarget([]string{args[0], name}, namespace)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// minArgs wants at least so many arguments.
func minArgs(least int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return exit.Errorf(exit.Usage, "missing argument %s; usage: %s", what, cmd.UseLine())
		}
		return nil
	}
}
