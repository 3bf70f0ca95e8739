package cli

import "github.com/spf13/cobra"

// defaultServer is where "tandem local" and "tandem scheduler" listen unless told otherwise.
const defaultServer = "http://127.0.0.1:7070"

func (a *app) workCommands() []*cobra.Command {
	return []*cobra.Command{a.validateCommand()}
}
