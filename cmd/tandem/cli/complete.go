package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionDeadline bounds what a press of the tab key may wait for the scheduler.
const completionDeadline = 700 * time.Millisecond

// kindNames are the kinds for completion; plural for lists.
func kindNames(plural bool, only ...func(kind) bool) []string {
	var out []string
	for _, k := range kinds {
		if slices.ContainsFunc(only, func(f func(kind) bool) bool { return !f(k) }) {
			continue
		}
		if plural {
			out = append(out, k.plural)
		} else {
			out = append(out, k.name)
		}
	}
	return out
}

func isWorkload(k kind) bool { return k.workload }

func isDeclared(k kind) bool { return k.declared != "" }

// completeTargets completes KIND NAME and KIND/NAME.
func (a *app) completeTargets(words []string, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if kindWord, _, slash := strings.Cut(toComplete, "/"); slash {
			var out []string
			for _, name := range a.completeNames(cmd, kindWord) {
				out = append(out, kindWord+"/"+name)
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		}
		switch {
		case len(args) == 0:
			return words, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 || several:
			return a.completeNames(cmd, args[0]), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames asks the scheduler for names; none when it does not answer at once.
func (a *app) completeNames(cmd *cobra.Command, kindWord string) []string {
	k, err := lookupKind(kindWord)
	if err != nil {
		return nil
	}
	s := scopeOf(cmd)
	b, err := s.backend(a)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(contextOf(cmd), completionDeadline)
	defer cancel()
	l, err := listKind(ctx, b, k, s.namespace, time.Now())
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range l.names {
		out = append(out, lastPart(n))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (a *app) completeNamespaces(cmd *cobra.Command, s *scope) []string {
	b, err := (&scope{server: s.server}).backend(a)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(contextOf(cmd), completionDeadline)
	defer cancel()
	var out []string
	for _, k := range kinds {
		if !k.workload {
			continue
		}
		objects, err := b.Objects(ctx, k.declared, "")
		if err != nil {
			return nil
		}
		for _, o := range objects {
			out = append(out, o.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// scopeOf reads the flags of a command that is being completed.
func scopeOf(cmd *cobra.Command) *scope {
	var s scope
	for name, value := range map[string]*string{"server": &s.server, "namespace": &s.namespace} {
		if f := cmd.Flags().Lookup(name); f != nil {
			*value = f.Value.String()
		}
	}
	return &s
}

func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
