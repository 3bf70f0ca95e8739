package main

import (
	"flag"
	"io"
	"path/filepath"
	"testing"

	"tandem/internal/clidoc"
)

var update = flag.Bool("update", false, "write docs/processd.md anew")

// TestReferenceIsUpToDate keeps docs/processd.md equal to the program.
func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	const remake = "go test ./cmd/tandem-processd -run TestReference -update"
	root := command(io.Discard, io.Discard)
	// It depends on who runs the test.
	root.PersistentFlags().Lookup("default-user").DefValue = "nobody"
	// And this on the machine.
	root.PersistentFlags().Lookup("default-pids-limit").DefValue = "0"
	clidoc.CheckPage(t, root, filepath.Join("..", "..", "docs", "processd.md"), remake, *update)
}

// TestEveryCommandHelpsItsUser: each has a description, an example, checks its
// arguments, and completes what it takes.
func TestEveryCommandHelpsItsUser(t *testing.T) {
	t.Parallel()
	clidoc.CheckCommands(t, command(io.Discard, io.Discard))
}
