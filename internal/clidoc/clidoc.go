// Package clidoc writes the reference page of a program's command line from the
// program itself, and checks in tests that each command helps its user.
package clidoc

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reference renders a whole command tree as a page, such as docs/cli.md; remake is
// the command that makes the page anew.
func Reference(root *cobra.Command, remake string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The %s command\n\nThis page is made from the program itself (`%s`); a test fails when they differ.\n\n", root.Name(), remake)
	Walk(root, func(c *cobra.Command) {
		indent := strings.Repeat("  ", depth(c))
		fmt.Fprintf(&b, "%s- [%s](#%s): %s\n", indent, c.CommandPath(), anchor(c), c.Short)
	})
	Walk(root, func(c *cobra.Command) { section(&b, c) })
	return b.String()
}

func section(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n", c.CommandPath())
	long := c.Long
	if long == "" {
		long = c.Short
	}
	if c.Runnable() {
		fmt.Fprintf(b, "```\n%s\n```\n\n", c.UseLine())
	}
	fmt.Fprintf(b, "```text\n%s\n```\n", strings.TrimSpace(long))
	if len(c.Aliases) > 0 {
		fmt.Fprintf(b, "\nAlso: %s\n", strings.Join(c.Aliases, ", "))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", c.Example)
	}
	flags := c.NonInheritedFlags()
	if flags.HasAvailableFlags() {
		b.WriteString("\n| flag | meaning |\n| --- | --- |\n")
		flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				fmt.Fprintf(b, "| `%s` | %s |\n", flagLine(f), cell(flagMeaning(f)))
			}
		})
	}
}

func flagLine(f *pflag.Flag) string {
	line := "--" + f.Name
	if f.Shorthand != "" {
		line = "-" + f.Shorthand + ", " + line
	}
	name, _ := pflag.UnquoteUsage(f)
	if name != "" {
		line += " " + name
	}
	return line
}

func flagMeaning(f *pflag.Flag) string {
	_, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "false", "[]", "0", "0s":
		return usage
	}
	return fmt.Sprintf("%s (default `%s`)", usage, f.DefValue)
}

func cell(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) }

func anchor(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func depth(c *cobra.Command) int {
	n := 0
	for ; c.HasParent(); c = c.Parent() {
		n++
	}
	return n
}

// Walk visits every command that people are meant to see, parents first.
func Walk(c *cobra.Command, visit func(*cobra.Command)) {
	if c.Hidden || c.Name() == "help" {
		return
	}
	visit(c)
	for _, sub := range c.Commands() {
		Walk(sub, visit)
	}
}
