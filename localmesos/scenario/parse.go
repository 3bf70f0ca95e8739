package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse reads a scenario. All errors of the file come at once, in a *SyntaxError.
func Parse(file, text string) (*Scenario, error) {
	s := &Scenario{File: file}
	p := &parser{tasks: map[string]bool{}, frameworks: map[string]bool{}}
	failed := &SyntaxError{File: file}
	for i, line := range strings.Split(text, "\n") {
		words, err := split(line)
		if err == nil && len(words) > 0 {
			var do action
			if do, err = p.line(words); err == nil {
				s.steps = append(s.steps, step{line: i + 1, text: strings.Join(strings.Fields(line), " "), do: do})
			}
		}
		if err != nil {
			for _, e := range unjoin(err) {
				failed.Lines = append(failed.Lines, LineError{i + 1, e.Error()})
			}
		}
	}
	if len(failed.Lines) == 0 && len(s.steps) == 0 {
		failed.Lines = []LineError{{1, `there is no step; begin with "cluster"`}}
	}
	if len(failed.Lines) > 0 {
		return nil, failed
	}
	return s, nil
}

func unjoin(err error) []error {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		return many.Unwrap()
	}
	return []error{err}
}

// parser knows what the lines so far have made.
type parser struct {
	agents     int // 0 before the cluster
	tasks      map[string]bool
	frameworks map[string]bool
	first      string // framework
}

// verbs are the words that a line may begin with.
var verbs = map[string]func(*parser, *line) (action, error){
	"cluster":   (*parser).cluster,
	"framework": (*parser).framework,
	"launch":    (*parser).launch,
	"kill":      (*parser).kill,
	"reconcile": (*parser).reconcile,
	"fault":     (*parser).fault,
	"wait":      (*parser).wait,
	"expect":    (*parser).expect,
	"hold":      (*parser).hold,
}

// Verbs are the words that a line may begin with, sorted.
func Verbs() []string { return slices.Sorted(maps.Keys(verbs)) }

func (p *parser) line(words []string) (action, error) {
	parse, ok := verbs[words[0]]
	if !ok {
		return nil, unknown("step", words[0], Verbs())
	}
	if words[0] != "cluster" && p.agents == 0 {
		p.agents = 1 // once is enough
		return nil, fmt.Errorf(`%s: there is no cluster yet; begin with "cluster"`, words[0])
	}
	l := &line{verb: words[0], words: words[1:]}
	do, err := parse(p, l)
	if err == nil && len(l.words) > 0 {
		err = fmt.Errorf("%s: %q is not expected here", l.verb, l.words[0])
	}
	if err != nil {
		return nil, err
	}
	return do, nil
}

// line is what is left of a line.
type line struct {
	verb  string
	words []string
}

func (l *line) errorf(format string, args ...any) error {
	return fmt.Errorf(l.verb+": "+format, args...)
}

// next takes a word.
func (l *line) next(what string) (string, error) {
	if len(l.words) == 0 {
		return "", l.errorf("%s is missing", what)
	}
	w := l.words[0]
	l.words = l.words[1:]
	return w, nil
}

// after takes "word VALUE" from wherever it is in the line; ok tells whether it is there.
func (l *line) after(word string) (value string, ok bool, err error) {
	i := slices.Index(l.words, word)
	if i < 0 {
		return "", false, nil
	}
	if i+1 == len(l.words) {
		return "", true, l.errorf("%q needs a value after it", word)
	}
	value = l.words[i+1]
	l.words = slices.Delete(slices.Clone(l.words), i, i+2)
	return value, true, nil
}

// maxDuration bounds the durations of a scenario.
const maxDuration = 10 * time.Minute

// durationAfter takes "word DURATION"; otherwise is the value without it.
func (l *line) durationAfter(word string, otherwise time.Duration) (time.Duration, error) {
	text, ok, err := l.after(word)
	if !ok || err != nil {
		return otherwise, err
	}
	return l.duration(word, text)
}

func (l *line) duration(what, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, l.errorf("%s %q is not a duration; use such as 500ms or 20s", what, text)
	case d <= 0 || d > maxDuration:
		return 0, l.errorf("%s %s is not between 0 and %s", what, text, maxDuration)
	}
	return d, nil
}

// options takes all words of the form name=value; those that are not known are errors.
func (l *line) options(known ...string) (map[string]string, error) {
	out := map[string]string{}
	var rest []string
	var errs []error
	for _, w := range l.words {
		name, value, ok := strings.Cut(w, "=")
		switch {
		case !ok:
			rest = append(rest, w)
		case !slices.Contains(known, name):
			errs = append(errs, fmt.Errorf("%s: %w", l.verb, unknown("option", name, known)))
		case out[name] != "":
			errs = append(errs, l.errorf("option %s is given twice", name))
		case value == "":
			errs = append(errs, l.errorf("option %s is empty", name))
		default:
			out[name] = value
		}
	}
	l.words = rest
	return out, errors.Join(errs...)
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// name takes a name of letters, digits, dots and dashes: it becomes part of paths.
func (l *line) name(what string) (string, error) {
	w, err := l.next(what)
	if err != nil {
		return "", err
	}
	const longest = 64
	bad := strings.ContainsFunc(w, func(r rune) bool {
		return !strings.ContainsRune(nameLetters, r)
	})
	if bad || len(w) > longest || strings.Trim(w, ".") == "" {
		return "", l.errorf("%s %q is not a name; use letters, digits, - and _, at most %d", what, w, longest)
	}
	return w, nil
}

// agentName checks the name of an agent: agent-1 and so on.
func (p *parser) agentName(l *line, w string) error {
	text, ok := strings.CutPrefix(w, "agent-")
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 1 || n > p.agents || strconv.Itoa(n) != text {
		return l.errorf("there is no agent %q; use agent-1 to agent-%d", w, p.agents)
	}
	return nil
}

// of takes "of FRAMEWORK"; the first framework otherwise.
func (p *parser) of(l *line) (string, error) {
	name, ok, err := l.after("of")
	switch {
	case err != nil:
		return "", err
	case ok && !p.frameworks[name]:
		return "", l.errorf("there is no framework %q yet", name)
	case ok:
		return name, nil
	case p.first == "":
		return "", l.errorf(`there is no framework yet; add a line "framework" before`)
	}
	return p.first, nil
}

// task takes the name of a task that an earlier line launches.
func (p *parser) task(l *line) (string, error) {
	name, err := l.name("task")
	if err == nil && !p.tasks[name] {
		err = l.errorf("no line before this one launches a task %q", name)
	}
	return name, err
}
