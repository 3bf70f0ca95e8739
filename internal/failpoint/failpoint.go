// Package failpoint makes code fail at named places, so that tests can prove
// what happens when a program dies exactly there. Points are armed only by the
// environment variable TANDEM_FAILPOINTS (or by a test in the same process);
// when none are, a point costs one load of a pointer. It must never change
// what a program does in production.
//
// The grammar, in the variable:
//
//	points = point { ";" point }
//	point  = ( name | prefix "*" ) "=" term { "->" term }
//	term   = [ count "*" ] action [ "(" argument ")" ]
//	action = "off" | "error" | "kill" | "panic" | "record" | "sleep"
//
// A term with a count is used that many times, then the next one; one without
// a count for ever, except that one which is not the last counts as used once.
// After the last term the point is off. So "store/save=2*off->error(disk full)->kill"
// passes twice, fails once and then kills.
//
// error returns an error with the argument as its text, kill ends the process
// with SIGKILL as a power cut would, panic panics, sleep takes a duration such
// as 50ms.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// EnvVar is the variable that arms points.
const EnvVar = "TANDEM_FAILPOINTS"

// ErrInjected is wrapped by every error that a point returns.
var ErrInjected = errors.New("injected failure")

type set struct {
	mu     sync.Mutex
	points map[string][]*term
	// prefixes are the keys of points that end in "*", in the order given.
	prefixes []string
	hits     map[string]int
}

type term struct {
	left   int // -1: for ever
	action string
	arg    string
	sleep  time.Duration
}

var active atomic.Pointer[set]

func init() {
	spec := os.Getenv(EnvVar)
	if spec == "" {
		return
	}
	s, err := parse(spec)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", EnvVar, err)
		os.Exit(2)
	}
	active.Store(s)
}

// Inject is a point. It returns nil unless the point is armed with an error. What
// comes after the name is joined to it, only when points are armed.
func Inject(name string, more ...string) error {
	s := active.Load()
	if s == nil {
		return nil
	}
	return s.hit(name + strings.Join(more, ""))
}

// Armed tells whether any point is armed in this process.
func Armed() bool { return active.Load() != nil }

// Hits tells how often a point was passed since points were armed.
func Hits(name string) int {
	s := active.Load()
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[name]
}

// TB is the part of testing.TB that ForTest needs.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

// ForTest arms points in this process until the test ends. Tests that use it
// must not run in parallel with one another.
func ForTest(t TB, spec string) {
	t.Helper()
	s, err := parse(spec)
	if err != nil {
		t.Fatalf("failpoint: %v", err)
	}
	old := active.Swap(s)
	t.Cleanup(func() { active.Store(old) })
}

func (s *set) hit(name string) error {
	s.mu.Lock()
	s.hits[name]++
	var acts []*term
	for _, key := range s.prefixes {
		if strings.HasPrefix(name, strings.TrimSuffix(key, "*")) {
			acts = append(acts, next(s.points[key]))
		}
	}
	acts = append(acts, next(s.points[name]))
	s.mu.Unlock()
	for _, t := range acts {
		if err := t.act(name); err != nil {
			return err
		}
	}
	return nil
}

// next uses up one pass of the first term that has one left; nil when none has.
func next(terms []*term) *term {
	for _, t := range terms {
		if t.left == 0 {
			continue
		}
		if t.left > 0 {
			t.left--
		}
		return t
	}
	return nil
}

func (t *term) act(name string) error {
	if t == nil {
		return nil
	}
	switch t.action {
	case "error":
		return fmt.Errorf("%w at %s: %s", ErrInjected, name, t.arg)
	case "kill":
		// os.Exit would run nothing either, but only SIGKILL is what the tests claim.
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "panic":
		panic("failpoint " + name + ": " + t.arg)
	case "record":
		record(t.arg, name)
	case "sleep":
		time.Sleep(t.sleep)
	}
	return nil
}

func parse(spec string) (*set, error) {
	s := &set{points: map[string][]*term{}, hits: map[string]int{}}
	for point := range strings.SplitSeq(spec, ";") {
		if strings.TrimSpace(point) == "" {
			continue
		}
		name, rest, ok := strings.Cut(point, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, fmt.Errorf("point %q: want name=term->term", point)
		}
		for text := range strings.SplitSeq(rest, "->") {
			t, err := parseTerm(strings.TrimSpace(text))
			if err != nil {
				return nil, fmt.Errorf("point %q: %w", name, err)
			}
			if n := len(s.points[name]); n > 0 && s.points[name][n-1].left < 0 {
				s.points[name][n-1].left = 1
			}
			if strings.HasSuffix(name, "*") && !slices.Contains(s.prefixes, name) {
				s.prefixes = append(s.prefixes, name)
			}
			s.points[name] = append(s.points[name], t)
		}
	}
	return s, nil
}

func parseTerm(text string) (*term, error) {
	t := &term{left: -1}
	head, arg, hasArg := strings.Cut(text, "(")
	if hasArg {
		if !strings.HasSuffix(arg, ")") {
			return nil, fmt.Errorf("term %q: missing )", text)
		}
		t.arg = strings.TrimSuffix(arg, ")")
	}
	if count, action, ok := strings.Cut(head, "*"); ok {
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("term %q: the count must be a positive number", text)
		}
		t.left, head = n, action
	}
	t.action = strings.TrimSpace(head)
	switch t.action {
	case "off", "error", "kill", "panic":
	case "record":
		if t.arg == "" {
			return nil, fmt.Errorf("term %q: want record(path)", text)
		}
	case "sleep":
		d, err := time.ParseDuration(t.arg)
		if err != nil {
			return nil, fmt.Errorf("term %q: %w", text, err)
		}
		t.sleep = d
	default:
		return nil, fmt.Errorf("term %q: unknown action; want off, error, kill, panic, record or sleep", text)
	}
	return t, nil
}
