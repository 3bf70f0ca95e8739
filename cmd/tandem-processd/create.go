package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

func (a *asker) create() *cobra.Command {
	var file string
	var start bool
	c := a.runs(&cobra.Command{
		Use: "create -f FILE", Short: "Create a task from a specification", Args: noArguments,
		Long: `Creates a task from a specification in JSON or YAML, as PUT /v1/tasks/{id} takes it (its fields are in the
OpenAPI description; durations are nanoseconds), and waits until it is ready. The same again has no effect;
another specification for an id that exists is refused. The task has no executor: it runs until it is
stopped and stays known until it is deleted.`,
		Example: "  tandem-processd create -f task.yaml --start\n  echo '{\"id\": \"a\", \"startCmd\": \"sleep 600\", \"sandbox\": \"/srv/a\"}' | tandem-processd create -f -",
	}, func(cmd *cobra.Command, d *client.Client, _ []string) error {
		ctx := cmd.Context()
		spec, err := readSpec(file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		s, err := d.Create(ctx, spec)
		if err != nil {
			return err
		}
		wait := a.wait
		if start {
			// A start needs a task that is ready.
			a.wait = max(wait, time.Hour)
		}
		s, err = a.follow(ctx, d, s, func(s *protocol.Status) bool { return s.State != protocol.StatePreparing })
		a.wait = wait
		if err == nil && start && s.State == protocol.StateReady {
			if s, err = d.Start(ctx, s.ID, 0); err == nil {
				s, err = a.follow(ctx, d, s, cameUp)
			}
		}
		return errors.Join(err, a.show(false, s), failed(&s))
	})
	f := c.Flags()
	f.StringVarP(&file, "file", "f", "", "`FILE` with the specification, or - for the standard input")
	f.BoolVar(&start, "start", false, "start it, too")
	a.outputFlag(c)
	a.waitFlag(c, "until it is ready, or runs")
	return c
}

func readSpec(file string, stdin io.Reader) (*protocol.Spec, error) {
	if file == "" {
		return nil, usageError{errors.New("-f: name a file with the specification, or - for the standard input")}
	}
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	// YAML contains JSON.
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", file, err)}
	}
	if text, err = json.Marshal(doc); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", file, err)}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	spec := new(protocol.Spec)
	if err := dec.Decode(spec); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", file, err)}
	}
	return spec, nil
}
