package cli

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "docs", "cli.md")
	const remake = "go test ./cmd/tandem/cli -run TestReference -update"
	want := Reference(New(Streams{Getenv: func(string) string { return "" }}), remake)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/cli.md differs from the program; run: %s", remake)
	}
}

func TestEveryCommandHelpsItsUser(t *testing.T) {
	t.Parallel()
	walk(New(Streams{Getenv: func(string) string { return "" }}), func(c *cobra.Command) {
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		if c.Runnable() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		if c.Runnable() && c.Args == nil {
			t.Errorf("%s does not check its arguments", c.CommandPath())
		}
	})
}
