package term

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func noEnv(string) string { return "" }

func TestTableIsAlignedAndPlainInAPipe(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	tab := Table{Columns: []Column{{Title: "NAME"}, {Title: "PORT", Right: true}, {Title: "MESSAGE", Flexible: true}}}
	tab.Row(Text("web-0"), Text("80"), Cell{"fine", Good})
	tab.Row(Text("a-long-name-0"), Text("31000"), Text("line one\nline two\x1b[31m"))
	tab.Row(Text("x"))
	if err := tab.Write(New(&buf, noEnv)); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"NAME            PORT  MESSAGE\n" +
		"web-0             80  fine\n" +
		"a-long-name-0  31000  line one line two[31m\n" +
		"x                  -  -\n"
	if got := buf.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	tab := Table{Columns: []Column{{Title: "NAME", Flexible: true}, {Title: "STATE"}, {Title: "MESSAGE", Flexible: true}}}
	tab.Row(Text(strings.Repeat("n", 30)), Text("RUNNING"), Text(strings.Repeat("m", 100)))
	if err := tab.Write(NewTerminal(&buf, 60, false)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(buf.String(), "\n"), "\n")
	if n := len([]rune(lines[1])); n != 60 {
		t.Errorf("row is %d wide, want 60: %s", n, lines[1])
	}
	if !strings.Contains(lines[1], strings.Repeat("n", 30)) || !strings.HasSuffix(lines[1], "m…") {
		t.Errorf("the last flexible column gives first: %s", lines[1])
	}
}

func TestStylesOnlyWhereShown(t *testing.T) {
	t.Parallel()
	if got := NewTerminal(nil, 80, true).Style(Bad, "x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("on a terminal: %q", got)
	}
	if got := NewTerminal(nil, 80, false).Style(Bad, "x"); got != "x" {
		t.Errorf("with NO_COLOR: %q", got)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if o := New(f, noEnv); o.Terminal() || o.Style(Bad, "x") != "x" {
		t.Error("a regular file was taken for a terminal")
	}
}

func TestProgressInAPipeIsOneLineForEachText(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	p := NewProgress(New(&buf, noEnv))
	p.Update("1 of 3")
	p.Update("1 of 3")
	p.Line("web-0 failed")
	p.Update("2 of 3")
	p.Done()
	p.Done()
	p.Update("late")
	if got, want := buf.String(), "1 of 3\nweb-0 failed\n2 of 3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgressOnATerminalIsOneLineThatGoes(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	p := NewProgress(NewTerminal(&buf, 20, false))
	p.Update("waiting for %s", strings.Repeat("x", 50))
	p.Done()
	got := buf.String()
	if strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("got %q", got)
	}
	for part := range strings.SplitSeq(got, "\r\x1b[K") {
		if len([]rune(part)) > 19 {
			t.Errorf("%q would wrap", part)
		}
	}
}

func TestCleanKeepsWords(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"plain", "plain"}, {" a  b ", "a b"}, {"a\tb\r\nc", "a b c"}, {"\x1b]0;title\x07x", "]0;titlex"}, {"größe", "größe"},
	} {
		if got := Clean(c[0]); got != c[1] {
			t.Errorf("Clean(%q) = %q, want %q", c[0], got, c[1])
		}
	}
}
