package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
	// failedPackages are those that failed without a failed test: they did not build, or broke outside of a test.
	failedPackages []result
	// beside is what packages with failed tests said outside of any test.
	beside      []result
	buildOutput map[string][]string
	children    map[string]bool
	// running are the tests, and open the packages, that began and have not ended.
	running, open map[string]bool
	// troubles are failures of go test itself.
	troubles []string
}

func newReport(out io.Writer) *report {
	return &report{
		out: out, output: map[string][]string{}, buildOutput: map[string][]string{},
		children: map[string]bool{}, running: map[string]bool{}, open: map[string]bool{},
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
	// A stream that breaks off, because go test was killed, leaves packages open.
	for _, p := range sorted(r.open) {
		r.endPackage(event{Action: "fail", Package: p, Output: "the package did not end"})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("testreport: reading go test's output: %w", err)
	}
	return nil
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		r.buildOutput[e.ImportPath] = append(r.buildOutput[e.ImportPath], e.Output)
	case "output":
		if note, ok := strings.CutPrefix(e.Output, "note: "); ok {
			fmt.Fprint(r.out, note)
		}
		r.output[key] = append(r.output[key], e.Output)
	case "start":
		r.open[e.Package] = true
	case "run":
		r.open[e.Package], r.running[key] = true, true
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			r.children[e.Package+" "+e.Test[:i]] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
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
		delete(r.running, key)
	}
}

func (r *report) endPackage(e event) {
	delete(r.open, e.Package)
	own := e.Package + " "
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %-50s %6.1fs\n", e.Package, e.Elapsed)
	case "fail":
		fmt.Fprintf(r.out, "FAIL  %-50s %6.1fs\n", e.Package, e.Elapsed)
		// A panic or a timeout ends a package while tests are running: their output is the evidence.
		for _, test := range sorted(r.running) {
			if strings.HasPrefix(test, own) {
				r.failed = append(r.failed, result{name: test + " (did not end)", output: r.output[test]})
			}
		}
		out := r.output[own]
		if e.FailedBuild != "" {
			out = append(out, r.buildOutput[e.FailedBuild]...)
		}
		if e.Output != "" {
			out = append(out, e.Output+"\n")
		}
		// What a package says beside its tests, such as a panic or leaked goroutines, may be the cause.
		if !r.hasFailed(own) {
			r.failedPackages = append(r.failedPackages, result{name: e.Package, seconds: e.Elapsed, output: out})
		} else if text := quiet(out); len(text) > 0 {
			r.beside = append(r.beside, result{name: e.Package, output: text})
		}
	}
	for k := range r.output {
		if strings.HasPrefix(k, own) {
			delete(r.output, k)
		}
	}
	for k := range r.running {
		if strings.HasPrefix(k, own) {
			delete(r.running, k)
		}
	}
}

// hasFailed tells whether a test failed whose name begins so.
func (r *report) hasFailed(prefix string) bool {
	for i := range r.failed {
		if strings.HasPrefix(r.failed[i].name, prefix) {
			return true
		}
	}
	return false
}

var noise = regexp.MustCompile(`^\s*(=== |--- |PASS$|FAIL$|FAIL\s|ok\s|coverage:|exit status)`)

// quiet leaves out the framework's own lines.
func quiet(lines []string) []string {
	var text []string
	for _, line := range lines {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !noise.MatchString(trimmed) {
			text = append(text, line)
		}
	}
	return text
}

// reason returns what a skipped test said.
func reason(lines []string) string {
	text := quiet(lines)
	for i := range text {
		text[i] = strings.TrimSpace(text[i])
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

// complain notes that go test failed by itself, and what it wrote to standard error.
func (r *report) complain(err error, stderr string) {
	if err != nil {
		r.troubles = append(r.troubles, fmt.Sprintf("go test: %v\n", err))
	}
	if strings.TrimSpace(stderr) != "" {
		fmt.Fprintf(r.out, "\nstandard error of go test:\n%s\n", strings.TrimRight(stderr, "\n"))
	}
}

// well tells whether nothing has failed so far.
func (r *report) well() bool {
	if len(r.failed)+len(r.failedPackages)+len(r.troubles) > 0 || len(r.passed)+len(r.skipped) == 0 {
		return false
	}
	for _, s := range r.skipped {
		if reason(s.output) == "" {
			return false
		}
	}
	return true
}

// print writes the report; it returns the closing line and whether all is well.
func (r *report) print() (closing string, ok bool) {
	for _, p := range r.failedPackages {
		fmt.Fprintf(r.out, "\n--- FAIL package %s\n%s", p.name, tail(p.output, 200))
	}
	for _, f := range r.failed {
		fmt.Fprintf(r.out, "\n--- FAIL %s (%.2fs)\n%s", f.name, f.seconds, tail(f.output, 400))
	}
	for _, p := range r.beside {
		fmt.Fprintf(r.out, "\n--- package %s, beside its tests\n%s", p.name, tail(p.output, 200))
	}
	if len(r.skipped) > 0 {
		fmt.Fprintf(r.out, "\nskipped:\n")
	}
	silent := 0
	for _, s := range r.skipped {
		why := reason(s.output)
		if why == "" {
			silent++
			why = "NO REASON GIVEN: a test that is skipped must say why, so this counts as failed"
		}
		fmt.Fprintf(r.out, "  %s\n      %s\n", s.name, why)
	}
	r.slowest(10)
	for _, t := range r.troubles {
		fmt.Fprintf(r.out, "\n%s", t)
	}
	if len(r.passed)+len(r.failed)+len(r.skipped) == 0 {
		fmt.Fprintf(r.out, "\nno test ran\n")
	}
	failed := len(r.failed) + len(r.failedPackages) + len(r.troubles) + silent
	closing = fmt.Sprintf("%d passed, %d failed, %d skipped", len(r.passed), failed, len(r.skipped)-silent)
	fmt.Fprintf(r.out, "\n%s\n", closing)
	return closing, r.well()
}

// slowest lists the n slowest tests that took a second or longer.
func (r *report) slowest(n int) {
	sort.SliceStable(r.passed, func(i, j int) bool { return r.passed[i].seconds > r.passed[j].seconds })
	shown := 0
	for _, p := range r.passed {
		// A parent's time is its children's.
		if r.children[p.name] || p.seconds < 1 || shown == n {
			continue
		}
		if shown == 0 {
			fmt.Fprintf(r.out, "\nslowest:\n")
		}
		fmt.Fprintf(r.out, "  %6.1fs  %s\n", p.seconds, p.name)
		shown++
	}
}

func tail(lines []string, n int) string {
	if len(lines) > n {
		lines = append([]string{fmt.Sprintf("... %d lines left out\n", len(lines)-n)}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "")
}

func sorted(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
