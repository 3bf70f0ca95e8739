// Command testreport reads the stream of `go test -json` and reports it for
// people and for CI: failures with their output, each skipped test with its
// reason, the slowest tests, and a closing line "N passed, N failed, N skipped".
//
// It exits 1 when a test or a build failed, when a test was skipped without
// saying why, and when no test ran at all: silence is not success.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"
)

// event is one line of test2json, see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

type result struct {
	name    string
	seconds float64
	output  []string
}

// report collects what the stream says.
type report struct {
	out                     io.Writer
	output                  map[string][]string
	passed, failed, skipped []result
	failedPackages          []result
	buildOutput             map[string][]string
	children                map[string]bool
}

func main() {
	stderr := flag.String("stderr", "", "file with what go test wrote to standard error; printed on failure")
	flag.Parse()
	r := &report{out: os.Stdout, output: map[string][]string{}, buildOutput: map[string][]string{}, children: map[string]bool{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	ok := r.print()
	if !ok && *stderr != "" {
		if text, err := os.ReadFile(*stderr); err == nil && len(text) > 0 {
			fmt.Printf("\nstandard error of go test:\n%s", text)
		}
	}
	if !ok {
		os.Exit(1)
	}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			// go vet and the linker write plain text between the events.
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.add(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading go test's output: %w", err)
	}
	return nil
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		r.buildOutput[e.ImportPath] = append(r.buildOutput[e.ImportPath], e.Output)
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "run":
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			r.children[e.Package+" "+e.Test[:i]] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e, key)
			return
		}
		res := result{name: key, seconds: e.Elapsed, output: r.output[key]}
		switch e.Action {
		case "pass":
			res.output = nil
			r.passed = append(r.passed, res)
		case "fail":
			r.failed = append(r.failed, res)
		case "skip":
			r.skipped = append(r.skipped, res)
		}
		delete(r.output, key)
	}
}

func (r *report) endPackage(e event, key string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %-50s %6.1fs\n", e.Package, e.Elapsed)
	case "fail":
		fmt.Fprintf(r.out, "FAIL  %-50s %6.1fs\n", e.Package, e.Elapsed)
		out := r.output[key]
		if e.FailedBuild != "" {
			out = append(out, r.buildOutput[e.FailedBuild]...)
		}
		r.failedPackages = append(r.failedPackages, result{name: e.Package, output: out})
		// A panic or a timeout ends a package while tests are running: their output is the evidence.
		for k, lines := range r.output {
			if k != key && strings.HasPrefix(k, e.Package+" ") {
				r.failed = append(r.failed, result{name: k + " (did not end)", output: lines})
			}
		}
	}
	for k := range r.output {
		if strings.HasPrefix(k, e.Package+" ") {
			delete(r.output, k)
		}
	}
}

var noise = regexp.MustCompile(`^\s*(=== |--- |PASS$|FAIL$|ok\s|coverage:|exit status)`)

// reason returns what a skipped test said, without the framework's own lines.
func reason(lines []string) string {
	var text []string
	for _, line := range lines {
		if !noise.MatchString(line) && strings.TrimSpace(line) != "" {
			text = append(text, strings.TrimSpace(line))
		}
	}
	joined := strings.Join(text, " ")
	// "file_test.go:12: reason": the place alone is no reason.
	if _, after, found := strings.Cut(joined, ".go:"); found {
		if _, after, found = strings.Cut(after, ":"); found && strings.TrimSpace(after) == "" {
			return ""
		}
	}
	return joined
}

// print writes the report and tells whether all is well.
func (r *report) print() bool {
	ok := true
	for _, p := range r.failedPackages {
		ok = false
		fmt.Fprintf(r.out, "\n--- package %s\n%s", p.name, tail(p.output, 200))
	}
	for _, f := range r.failed {
		ok = false
		fmt.Fprintf(r.out, "\n--- FAIL %s (%.2fs)\n%s", f.name, f.seconds, tail(f.output, 400))
	}
	if len(r.skipped) > 0 {
		fmt.Fprintf(r.out, "\nskipped:\n")
	}
	for _, s := range r.skipped {
		why := reason(s.output)
		if why == "" {
			ok = false
			why = "NO REASON GIVEN: a test that is skipped must say why"
		}
		fmt.Fprintf(r.out, "  %s\n      %s\n", s.name, why)
	}
	sort.Slice(r.passed, func(i, j int) bool { return r.passed[i].seconds > r.passed[j].seconds })
	fmt.Fprintf(r.out, "\nslowest:\n")
	shown := 0
	for _, p := range r.passed {
		if r.children[p.name] || p.seconds < 1 {
			continue
		}
		fmt.Fprintf(r.out, "  %6.1fs  %s\n", p.seconds, p.name)
		if shown++; shown == 10 {
			break
		}
	}
	if len(r.passed)+len(r.failed) == 0 {
		ok = false
		fmt.Fprintf(r.out, "\nno test ran\n")
	}
	failed := len(r.failed)
	if failed == 0 {
		failed = len(r.failedPackages)
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", len(r.passed), failed, len(r.skipped))
	return ok
}

func tail(lines []string, n int) string {
	if len(lines) > n {
		lines = append([]string{fmt.Sprintf("... %d lines left out\n", len(lines)-n)}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "")
}
