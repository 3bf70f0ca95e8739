// Command tandem is the command line and the servers of Tandem: it starts the
// stack on one machine, and declares, shows and stops what runs.
package main

import (
	"os"

	"tandem/cmd/tandem/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
