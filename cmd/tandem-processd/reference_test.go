package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tandem/cmd/tandem/cli"
)

var update = flag.Bool("update", false, "write docs/processd.md anew")

// TestReferenceIsUpToDate keeps docs/processd.md equal to the program.
func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	const remake = "go test ./cmd/tandem-processd -run TestReference -update"
	path := filepath.Join("..", "..", "docs", "processd.md")
	root := command(io.Discard, io.Discard)
	// It depends on who runs the test.
	root.PersistentFlags().Lookup("default-user").DefValue = "nobody"
	// And this on the machine.
	root.PersistentFlags().Lookup("default-pids-limit").DefValue = "0"
	want := cli.Reference(root, remake)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/processd.md differs from the program; run: %s", remake)
	}
}

// TestEveryCommandHelpsItsUser: each has a description, an example, checks its
// arguments, and completes what it takes.
func TestEveryCommandHelpsItsUser(t *testing.T) {
	t.Parallel()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		if c.Runnable() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		if c.Runnable() && c.Args == nil {
			t.Errorf("%s does not check its arguments", c.CommandPath())
		}
		if strings.Contains(c.Use, "ID") && c.ValidArgsFunction == nil {
			t.Errorf("%s completes no ids", c.CommandPath())
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(command(io.Discard, io.Discard))
}
