// Package command makes the command that runs scripted scenarios. It is for the
// tandem binary, which mounts it, and must hold no logic of a scenario.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tandem/localmesos/fault"
	"tandem/localmesos/scenario"
)

// ErrScenario says that a scenario did not go as its file says; what went wrong
// has been printed.
var ErrScenario = errors.New("a scenario failed")

// ErrScenarioTimeout is an ErrScenario about a step that waited in vain.
var ErrScenarioTimeout = fmt.Errorf("%w: it waited in vain", ErrScenario)

// NewScenarioCommand returns the command "scenario". Its errors wrap
// ErrScenario, ErrScenarioTimeout or *scenario.SyntaxError.
func NewScenarioCommand() *cobra.Command {
	var check, quiet bool
	var output, dir string
	o := scenario.Options{}
	c := &cobra.Command{
		Use:   "scenario FILE...",
		Short: "Run scripted scenarios of an embedded Mesos that breaks on purpose",
		Long: `Runs scripted scenarios, one after another: each starts a Mesos cluster of its own in this
process, launches tasks with a small built-in framework, breaks things on purpose and says
what must come of it. All files are read and checked first; when anything is wrong with any
of them nothing is run. A file has one step in each line:

  cluster agents=2 ping=300ms pings=3      # master and agents
  framework                                # one that launches tasks
  launch t1 t2 on agent-1
  wait tasks running=2 within 30s          # until it is so
  fault freeze agent-1 for 5m              # what "tandem mesos fault" can, and more
  wait task t1 TASK_UNREACHABLE
  fault thaw agent-1
  wait tasks running=2
  expect starts t1 1                       # it must be so now
  hold tasks running=2 for 1s              # and stay so

Steps: ` + strings.Join(scenario.Verbs(), ", ") + `.
Conditions: ` + strings.Join(scenario.Conditions(), ", ") + `.
The whole language is described in localmesos/scenario/README.md. Exit code 5 means that a
step waited in vain, 1 that another went wrong.`,
		Example: `  tandem mesos scenario localmesos/scenario/testdata/*.scenario
  tandem mesos scenario --check my.scenario
  tandem mesos scenario my.scenario -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%w arguments: no FILE; usage: %s", fault.ErrInvalid, cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q: %w: use text or json", output, fault.ErrInvalid)
			}
			if dir != "" && len(args) > 1 {
				return fmt.Errorf("%w use of --dir: it is for one file, there are %d", fault.ErrInvalid, len(args))
			}
			o.Dir = dir
			all, err := loadAll(args)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if check {
				return showChecked(out, all, output)
			}
			progress := cmd.ErrOrStderr()
			if quiet || output == "json" {
				progress = io.Discard
			}
			return runAll(cmd, all, o, output, progress)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"scenario"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := c.Flags()
	f.BoolVar(&check, "check", false, "read and check the files, and run nothing")
	f.StringVarP(&output, "output", "o", "text", "`format` of the result: text or json")
	f.BoolVarP(&quiet, "quiet", "q", false, "do not show the steps, only what came of the files")
	f.DurationVar(&o.Limit, "limit", scenario.DefaultLimit, "how long a file may take")
	f.StringVar(&dir, "dir", "", "`directory` for what the cluster keeps, which stays (default: a temporary one, which stays after a failure)")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	_ = c.MarkFlagDirname("dir")                                                                                                     // as above
	return c
}

// loadAll reads all files, or returns all that is wrong with any.
func loadAll(files []string) ([]*scenario.Scenario, error) {
	all := make([]*scenario.Scenario, 0, len(files))
	var errs []error
	for _, file := range files {
		s, err := scenario.Load(file)
		errs = append(errs, err)
		all = append(all, s)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("nothing was run:\n%w", err)
	}
	return all, nil
}

func showChecked(out io.Writer, all []*scenario.Scenario, output string) error {
	type checked struct {
		File  string `json:"file"`
		Steps int    `json:"steps"`
	}
	list := make([]checked, 0, len(all))
	for _, s := range all {
		list = append(list, checked{s.File, s.Steps()})
	}
	if output == "json" {
		return writeJSON(out, list)
	}
	for _, c := range list {
		fmt.Fprintf(out, "%s: ok, %d steps\n", c.File, c.Steps)
	}
	return nil
}

func writeJSON(out io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, string(b))
	return nil
}

func runAll(cmd *cobra.Command, all []*scenario.Scenario, o scenario.Options, output string, progress io.Writer) error {
	var results []scenario.Result
	var failed error
	for _, s := range all {
		o.Progress = func(begins bool, x scenario.StepResult) {
			switch {
			case begins:
			case x.OK:
				fmt.Fprintf(progress, "  ok    %s:%d: %s (%.1fs)\n", s.File, x.Line, x.Text, x.Seconds)
			default:
				fmt.Fprintf(progress, "  wrong %s:%d: %s (%.1fs)\n", s.File, x.Line, x.Text, x.Seconds)
			}
		}
		r := s.Run(cmd.Context(), o)
		results = append(results, r)
		if output == "text" {
			fmt.Fprint(cmd.OutOrStdout(), resultText(r))
		}
		switch {
		case r.OK || failed != nil:
		case r.TimedOut:
			failed = ErrScenarioTimeout
		default:
			failed = ErrScenario
		}
		if cmd.Context().Err() != nil {
			break
		}
	}
	if output == "json" {
		if err := writeJSON(cmd.OutOrStdout(), results); err != nil {
			return err
		}
	}
	return failed
}

// resultText is what came of a file, for people.
func resultText(r scenario.Result) string {
	if r.OK {
		return fmt.Sprintf("%s: ok, %d steps in %.1fs\n", r.File, len(r.Steps), r.Seconds)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: failed after %.1fs\n", r.File, r.Seconds)
	if n := len(r.Steps); n > 0 && !r.Steps[n-1].OK {
		x := r.Steps[n-1]
		fmt.Fprintf(&b, "  %s:%d: %s: %s\n", r.File, x.Line, x.Text, x.Error)
	}
	if r.Error != "" {
		fmt.Fprintf(&b, "  %s\n", r.Error)
	}
	if r.Log != "" {
		fmt.Fprintf(&b, "  the cluster's log is %s\n", r.Log)
	}
	return b.String()
}
