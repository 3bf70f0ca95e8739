package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const pass = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"pass","Package":"p","Elapsed":0.2}
`

// TestVerdict plays go test: a stream as `go test -json` writes it, then what a shell script does. It looks at the
// verdict, the closing line and what is shown.
func TestVerdict(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, stream, script, closing, shows string
		ok                                   bool
	}{
		{"all pass", pass, "", "1 passed, 0 failed, 0 skipped", "ok    p ", true},
		{"a note", `{"Action":"output","Package":"p","Test":"TestA","Output":"note: 3 points\n"}` + "\n" + pass, "", "1 passed, 0 failed, 0 skipped", "3 points\n", true},
		{"nothing ran", `{"Action":"pass","Package":"p","Elapsed":0.2}` + "\n", "", "0 passed, 0 failed, 0 skipped", "no test ran", false},
		{"a failure", pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"broken\n"}
{"Action":"fail","Package":"q","Test":"TestB"}
{"Action":"output","Package":"q","Output":"FAIL\n"}
{"Action":"output","Package":"q","Output":"goroutines leaked\n"}
{"Action":"fail","Package":"q"}
`, "exit 1", "1 passed, 1 failed, 0 skipped", "--- package q, beside its tests\ngoroutines leaked\n", false},
		{"a skip with its reason", pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:7: no Docker Engine here\n"}
{"Action":"skip","Package":"q","Test":"TestB"}
`, "", "1 passed, 0 failed, 1 skipped", "  q TestB\n      b_test.go:7: no Docker Engine here\n", true},
		{"a skip without a reason", pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:7: \n"}
{"Action":"skip","Package":"q","Test":"TestB"}
`, "", "1 passed, 1 failed, 0 skipped", "NO REASON GIVEN", false},
		{"a package that does not build, beside a failure elsewhere", pass + `{"Action":"fail","Package":"r","Test":"TestC"}
{"Action":"fail","Package":"r"}
{"ImportPath":"q","Action":"build-output","Output":"q.go:1: syntax error\n"}
{"Action":"fail","Package":"q","Elapsed":0,"FailedBuild":"q"}
`, "exit 1", "1 passed, 2 failed, 0 skipped", "--- FAIL package q\nq.go:1: syntax error\n", false},
		{"a test that never ends", pass + `{"Action":"run","Package":"q","Test":"TestB"}
{"Action":"output","Package":"q","Test":"TestB","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"q","Elapsed":5}
`, "exit 1", "1 passed, 1 failed, 0 skipped", "--- FAIL q TestB (did not end)", false},
		{"a stream that breaks off", pass + `{"Action":"start","Package":"q"}
{"Action":"run","Package":"q","Test":"TestB"}
`, "kill -9 $$", "1 passed, 2 failed, 0 skipped", "go test: signal: killed", false},
		{"a package that does not end", pass + `{"Action":"start","Package":"q"}
`, "exit 1", "1 passed, 1 failed, 0 skipped", "the package did not end", false},
		{"go test fails although all tests pass", pass, "echo no such module >&2; exit 1", "1 passed, 1 failed, 0 skipped", "standard error of go test:\nno such module\n", false},
		{"text between the events", "go: finding things\n" + pass, "echo downloading >&2", "1 passed, 0 failed, 0 skipped", "go: finding things\n", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "stream")
			if err := os.WriteFile(path, []byte(c.stream), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			closing, ok := run(&out, []string{"/bin/sh", "-c", "cat " + path + "; " + c.script})
			if ok != c.ok {
				t.Errorf("verdict %v, want %v; report:\n%s", ok, c.ok, out.String())
			}
			if closing != c.closing || !strings.HasSuffix(out.String(), "\n"+c.closing+"\n") {
				t.Errorf("closing line %q, want %q, and last; report:\n%s", closing, c.closing, out.String())
			}
			if !strings.Contains(out.String(), c.shows) {
				t.Errorf("report does not show %q:\n%s", c.shows, out.String())
			}
		})
	}
}

// TestRealStream runs a module whose tests pass, fail, skip and break, through go test itself.
func TestRealStream(t *testing.T) {
	t.Parallel()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command in PATH:", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module sample\n\ngo 1.26\n",
		"good/a_test.go":  "package good\nimport \"testing\"\nfunc TestGood(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}) }\nfunc TestSkip(t *testing.T) { t.Skip(\"for a reason\") }\n",
		"panic/a_test.go": "package panic\nimport \"testing\"\nfunc TestPanic(t *testing.T) { panic(\"oh\") }\n",
		"build/a_test.go": "package build\nvar _ = nowhere\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	closing, ok := run(&out, []string{goTool, "test", "-C", dir, "-json", "-vet=off", "./..."})
	if want := "2 passed, 2 failed, 1 skipped"; ok || closing != want {
		t.Errorf("%v, %q; want false, %q; report:\n%s", ok, closing, want, out.String())
	}
	for _, want := range []string{"a_test.go:4: for a reason", "panic: oh", "undefined: nowhere", "--- FAIL sample/panic TestPanic", "--- FAIL package sample/build"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report does not show %q:\n%s", want, out.String())
		}
	}
}
