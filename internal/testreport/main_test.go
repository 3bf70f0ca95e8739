package main

import (
	"strings"
	"testing"
)

// TestVerdict feeds streams as `go test -json` writes them and looks at the verdict and the closing line.
func TestVerdict(t *testing.T) {
	t.Parallel()
	const pass = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"pass","Package":"p","Elapsed":0.2}
`
	cases := []struct {
		name, stream, closing string
		ok                    bool
	}{
		{"all pass", pass, "1 passed, 0 failed, 0 skipped", true},
		{"nothing ran", `{"Action":"pass","Package":"p","Elapsed":0.2}` + "\n", "0 passed, 0 failed, 0 skipped", false},
		{"a failure", pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"broken\n"}
{"Action":"fail","Package":"q","Test":"TestB"}
{"Action":"fail","Package":"q"}
`, "1 passed, 1 failed, 0 skipped", false},
		{"a skip with its reason", pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:7: no Docker Engine here\n"}
{"Action":"skip","Package":"q","Test":"TestB"}
`, "1 passed, 0 failed, 1 skipped", true},
		{"a skip without a reason", pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:7: \n"}
{"Action":"skip","Package":"q","Test":"TestB"}
`, "1 passed, 0 failed, 1 skipped", false},
		{"a package that does not build", pass + `{"ImportPath":"q","Action":"build-output","Output":"q.go:1: syntax error\n"}
{"Action":"fail","Package":"q","Elapsed":0,"FailedBuild":"q"}
`, "1 passed, 1 failed, 0 skipped", false},
		{"a test that never ends", pass + `{"Action":"run","Package":"q","Test":"TestB"}
{"Action":"output","Package":"q","Test":"TestB","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"q","Elapsed":5}
`, "1 passed, 1 failed, 0 skipped", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			r := &report{out: &out, output: map[string][]string{}, buildOutput: map[string][]string{}, children: map[string]bool{}}
			if err := r.read(strings.NewReader(c.stream)); err != nil {
				t.Fatal(err)
			}
			if got := r.print(); got != c.ok {
				t.Errorf("verdict %v, want %v; report:\n%s", got, c.ok, out.String())
			}
			if !strings.HasSuffix(strings.TrimSpace(out.String()), c.closing) {
				t.Errorf("closing line: got\n%s\nwant %q", out.String(), c.closing)
			}
		})
	}
}
