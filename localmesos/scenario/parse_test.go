package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"":                              nil,
		"  # nothing":                   nil,
		"a  b\tc\r":                     {"a", "b", "c"},
		`a "b c" # d`:                   {"a", "b c"},
		`command="echo \"x\" # y" z`:    {`command=echo "x" # y`, "z"},
		`a#b ""`:                        {"a#b", ""},
		`resources="cpus:1;mem:64" a\b`: {"resources=cpus:1;mem:64", `a\b`},
	} {
		if got, err := split(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`a "b`, `"a\n"`, `"\`, "a\x00b", "\x1b[2J"} {
		if got, err := split(in); err == nil {
			t.Errorf("%q was taken: %q", in, got)
		}
	}
}

// TestAllErrorsAtOnce: each wrong line is named with what is wrong and what to do.
func TestAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.scenario", strings.Join([]string{
		"cluster agents=2 ping=soon nodes=3",
		"framework checkpoint=maybe",
		"launch t1 on agent-99 cpus=none",
		"launch t1",
		"launch ../x",
		"wait task t2 TASK_RUNNING",
		"wait task t1 TASK_RUNNIN",
		"wait tasks running",
		"wait agents many",
		"wait offers 1 extra",
		"expect",
		"hold offers 1",
		"fault frezee master",
		"fault cut executor",
		"fault freeze agent-35",
		"fault lose master",
		"fault drop times none",
		"fault delay scheduler",
		"fault cut scheduler for ever",
		"fault drop update state=running",
		"kill",
		"sleep 3",
		"cluster",
		`launch "x`,
	}, "\n"))
	var syntax *SyntaxError
	if !errors.As(err, &syntax) {
		t.Fatal(err)
	}
	for _, want := range []string{
		`x.scenario:1: cluster: option "nodes" is unknown`, `x.scenario:1: cluster: ping "soon" is not a duration`,
		`x.scenario:2: framework: checkpoint=maybe is neither true nor false`,
		`x.scenario:3: launch: cpus=none is not a positive number`, `x.scenario:3: launch: there is no agent "agent-99"`,
		`x.scenario:4: launch: task "t1" is launched already`,
		`x.scenario:5: launch: task "../x" is not a name`,
		`x.scenario:6: wait task: no line before this one launches a task "t2"`,
		`x.scenario:7: wait task: state "TASK_RUNNIN" is unknown; did you mean "TASK_RUNNING"?`,
		`x.scenario:8: wait tasks: "running" is not STATE=NUMBER`,
		`x.scenario:9: wait agents: "many" is not a number`,
		`x.scenario:10: wait offers: "extra" is not expected here`,
		`x.scenario:11: expect: a condition is missing`,
		`x.scenario:12: hold: "for" is missing`,
		`x.scenario:13: fault: kind "frezee" is unknown; did you mean "freeze"?`,
		`x.scenario:14: fault cut: part "executor" is not on the master`,
		`x.scenario:16: fault lose: there is none on the master`,
		`x.scenario:17: fault: times "none" is not a positive number`,
		`x.scenario:18: fault delay: it does not say by how much`,
		`x.scenario:19: fault: for "ever" is not a duration`,
		`x.scenario:20: fault drop: state "running" is unknown`,
		`x.scenario:21: kill: no task is named`,
		`x.scenario:22: step "sleep" is unknown`,
		`x.scenario:23: cluster: there is a cluster already`,
		`x.scenario:24: a " has no end`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("there is no %s", want)
		}
	}
	if n := len(syntax.Lines); n < 24 {
		t.Errorf("%d errors:\n%v", n, err)
	}
	for name, text := range map[string]string{"empty": "", "comments": "# a\n\n  # b", "no cluster": "framework", "no framework": "cluster\nlaunch t1"} {
		if _, err := Parse("x", text); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	if _, err := Load(filepath.Join(t.TempDir(), "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	var syntax *SyntaxError
	if _, err := Load(large); !errors.As(err, &syntax) {
		t.Error(err)
	}
}

// TestReadme: every step, condition and kind of fault is in the reference.
func TestReadme(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Concat(Verbs(), Conditions(), slices.Collect(faultWords()))
	for _, w := range words {
		if !strings.Contains(string(b), "`"+w) {
			t.Errorf("README.md does not describe %q", w)
		}
	}
	// The example in it is a scenario.
	_, rest, _ := strings.Cut(string(b), "```scenario\n")
	example, _, ok := strings.Cut(rest, "```")
	if _, err := Parse("README.md", example); err != nil || !ok {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.scenario")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("cluster\nframework x\nlaunch a b on agent-1 cpus=1 command=\"x\" of x\nhold tasks running=1+ for 1s")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("fuzz", text)
		var syntax *SyntaxError
		if (err == nil) == (s == nil) || err != nil && !errors.As(err, &syntax) {
			t.Fatalf("%v, %v", s, err)
		}
		lines := strings.Count(text, "\n") + 1
		if syntax != nil {
			for _, l := range syntax.Lines {
				if l.Line < 1 || l.Line > lines || l.Text == "" {
					t.Errorf("%+v", l)
				}
			}
			return
		}
		if s.Steps() == 0 || s.Steps() > lines {
			t.Errorf("%d steps", s.Steps())
		}
		for _, x := range s.steps {
			if x.do == nil || x.text == "" {
				t.Errorf("%+v", x)
			}
			// Whatever is launched must not lead out of the scenario's directory.
			if l, ok := x.do.(*launchStep); ok {
				for _, name := range l.tasks {
					if strings.ContainsAny(name, "/\x00") || name == "." || name == ".." || name == "" {
						t.Errorf("task %q", name)
					}
				}
			}
		}
	})
}
