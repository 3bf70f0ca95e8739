package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/cmd/tandem/exit"
	"tandem/localmesos"
)

// TestMesosTools: what the tools of the embedded Mesos say becomes an exit code.
func TestMesosTools(t *testing.T) {
	t.Parallel()
	c, err := localmesos.Start(t.Context(), localmesos.Options{Dir: t.TempDir()}) // without faults
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	master := strings.TrimPrefix(c.MasterURL(), "http://")
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, x := range []struct {
		args []string
		code exit.Code
		want string
	}{
		{[]string{"fault", "freeze", "master", "--master", master}, exit.Refused, "start it with --enable-faults"},
		{[]string{"fault", "freeze", "master", "--master", "127.0.0.1:1"}, exit.Unreachable, "cannot be reached"},
		{[]string{"fault", "freeze", "nobody", "--master", master}, exit.NotFound, "not found"},
		{[]string{"fault", "freeze"}, exit.Usage, "usage: tandem mesos fault freeze TARGET"},
		{[]string{"fault", "frezee"}, exit.Usage, `did you mean "freeze"?`},
		{[]string{"fault", "cut", "scheduler", "--for", "soon"}, exit.Usage, "--for"},
		{[]string{"fault"}, exit.OK, ""},
		{[]string{"scenario"}, exit.Usage, "no FILE"},
		{[]string{"scenario", filepath.Join(dir, "nowhere")}, exit.Usage, "no such file"},
		{[]string{"scenario", write("bad", "clster\n")}, exit.Usage, `bad:1: step "clster" is unknown; did you mean "cluster"?`},
		{[]string{"scenario", "-q", "--dir", filepath.Join(dir, "1"), write("good", "cluster\nwait agents 1\n")}, exit.OK, ""},
		{[]string{"scenario", "-q", "--dir", filepath.Join(dir, "2"), write("wrong", "cluster\nexpect agents 2\n")}, exit.Failure, ""},
		{[]string{"scenario", "-q", "--dir", filepath.Join(dir, "3"), write("slow", "cluster\nwait agents 2 within 100ms\n")}, exit.TimedOut, ""},
	} {
		var out, problems bytes.Buffer
		code := Run(t.Context(), append([]string{"mesos"}, x.args...), Streams{In: strings.NewReader(""), Out: &out, Err: &problems, Getenv: func(string) string { return "" }})
		if code != x.code || !strings.Contains(problems.String(), x.want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s%s", x.args, code, x.code, x.want, out.String(), problems.String())
		}
	}
}
