package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"tandem/cmd/tandem/exit"
)

// result is what one command line gave.
type result struct {
	code        exit.Code
	out, errOut string
}

// run runs a command line without a terminal.
func run(t *testing.T, env map[string]string, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := Run(context.Background(), args, Streams{
		In: strings.NewReader(stdin), Out: &out, Err: &errOut,
		Getenv: func(k string) string { return env[k] },
	})
	return result{code, out.String(), errOut.String()}
}

func TestUsageErrorsNameTheRemedy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verzion"}, `tandem: unknown command "verzion" for "tandem"; did you mean "version"? see "tandem --help" for all commands`},
		{[]string{"xyzzy"}, `tandem: unknown command "xyzzy" for "tandem"; see "tandem --help" for all commands`},
		{[]string{"aply", "-f", "x"}, `unknown command "aply" for "tandem"; did you mean "apply"?`},
		{[]string{"mesos", "agnet", "--ip=1"}, `unknown command "agnet" for "tandem mesos"; did you mean "agent"?`},
		{[]string{"--colour"}, `unknown flag: --colour; see "tandem --help"`},
		{[]string{"version", "--colour"}, `unknown flag: --colour; see "tandem version --help"`},
		{[]string{"version", "-o", "xml"}, `use one of table, json, yaml`},
		{[]string{"version", "extra"}, `unexpected argument "extra"; usage: tandem version`},
		{[]string{"completion"}, `missing argument SHELL; usage: tandem completion SHELL`},
		{[]string{"completion", "csh"}, `unknown shell "csh"; use bash, zsh or fish`},
	} {
		r := run(t, nil, "", c.args...)
		if r.code != exit.Usage || !strings.Contains(r.errOut, c.want) || r.out != "" || strings.Count(r.errOut, "\n") != 1 {
			t.Errorf("%v: code %d, out %q, err %q; want code 2 and %q", c.args, r.code, r.out, r.errOut, c.want)
		}
	}
}

func TestHelpAndVersionSucceed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "Run the stack:"},
		{[]string{"--help"}, "TANDEM_SERVER"},
		{[]string{"help", "exit-codes"}, "3  the scheduler cannot be reached"},
		{[]string{"version"}, "tandem "},
		{[]string{"version", "-o", "json"}, `"commit":`},
		{[]string{"version", "-o", "yaml"}, `commit: `},
		{[]string{"--version"}, "tandem "},
		{[]string{"completion", "bash"}, "__start_tandem"},
		{[]string{"completion", "zsh"}, "#compdef tandem"},
		{[]string{"completion", "fish"}, "complete -c tandem"},
	} {
		r := run(t, nil, "", c.args...)
		if r.code != exit.OK || !strings.Contains(r.out, c.want) || r.errOut != "" {
			t.Errorf("%v: code %d, out %q, err %q; want %q", c.args, r.code, r.out, r.errOut, c.want)
		}
	}
}
