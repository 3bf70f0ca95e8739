// Command testreport runs `go test -json` and reports it for people and for CI:
// failures with their output, each skipped test with its reason, the slowest
// tests, and a closing line "N passed, N failed, N skipped". A line of a test that
// begins with "note: " is shown at once, without that, also when the test passes.
//
// It exits 1 when a test or a build failed, when a test was skipped without
// saying why, when a package began and did not end, when go test itself failed,
// and when no test ran at all: silence is not success.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	closing := flag.String("closing", "", "file that gets the closing line as well")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: testreport [-closing FILE] go test -json [ARGUMENT...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	// Ctrl-C and CI's signals reach go test as well; what it did until then is reported.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	line, ok := run(os.Stdout, flag.Args())
	if *closing != "" {
		if err := os.WriteFile(*closing, []byte(line+"\n"), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "testreport:", err)
			ok = false
		}
	}
	if !ok {
		os.Exit(1)
	}
}

// run runs the command and reports its stream to out. It returns the closing line and whether all is well.
func run(out io.Writer, command []string) (closing string, ok bool) {
	r := newReport(out)
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // the limit is go test's own -timeout
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := r.follow(cmd)
	if err != nil || !r.well() {
		// What the compiler and the downloads say is noise as long as all is well.
		r.complain(err, stderr.String())
	}
	return r.print()
}

// follow starts the command, reads its standard output to the end and waits for it.
func (r *report) follow(cmd *exec.Cmd) error {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("testreport: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("testreport: %w", err)
	}
	read := r.read(stdout)
	if read != nil {
		// A command whose output is not read would wait for ever.
		_, _ = io.Copy(io.Discard, stdout)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && !r.well() {
		err = nil // it says by that what the stream has said
	}
	return errors.Join(read, err)
}
