package clidoc

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CheckPage fails a test when a page differs from the Reference of a command, and
// writes it anew with update. remake is the command that does so.
func CheckPage(t testing.TB, root *cobra.Command, path, remake string, update bool) {
	t.Helper()
	want := Reference(root, remake)
	if update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the program; run: %s", path, remake)
	}
}

// CheckCommands fails a test for each command that does not describe itself and its
// flags, has no example, does not check its arguments, or takes an ID and completes none.
func CheckCommands(t testing.TB, root *cobra.Command) {
	t.Helper()
	Walk(root, func(c *cobra.Command) {
		for _, lack := range []struct {
			is   bool
			what string
		}{
			{c.Short == "" || c.Long == "", "has no description"},
			{c.Runnable() && c.Example == "", "has no example"},
			{c.Runnable() && c.Args == nil, "does not check its arguments"},
			{strings.Contains(c.Use, "ID") && c.ValidArgsFunction == nil, "completes no ids"},
		} {
			if lack.is {
				t.Errorf("%s %s", c.CommandPath(), lack.what)
			}
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.CommandPath(), f.Name)
			}
		})
	})
}
