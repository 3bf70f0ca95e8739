package cli

import (
	"flag"
	"path/filepath"
	"testing"

	"tandem/internal/clidoc"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	const remake = "go test ./cmd/tandem/cli -run TestReference -update"
	clidoc.CheckPage(t, New(Streams{Getenv: func(string) string { return "" }}), filepath.Join("..", "..", "..", "docs", "cli.md"), remake, *update)
}

func TestEveryCommandHelpsItsUser(t *testing.T) {
	t.Parallel()
	clidoc.CheckCommands(t, New(Streams{Getenv: func(string) string { return "" }}))
}
