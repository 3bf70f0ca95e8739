package scenario

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"tandem/localmesos"
	"tandem/localmesos/fault"
)

// faultStep puts a fault in force, or ends one.
type faultStep struct {
	on string
	f  fault.Fault
	// other is one of the words beside the kinds of faults.
	other string
}

// otherFaults end faults, or bring back what they ended.
var otherFaults = map[string]bool{"thaw": true, "resume-offers": false, "clear": false, "return": true, "replace": true} // true: with a target

// takesTarget are the kinds whose first word is the target.
var takesTarget = map[fault.Kind]bool{fault.Freeze: true, fault.Kill: true, fault.Restart: true, fault.Lose: true, fault.Reboot: true}

// faultWords are all words that may come after "fault".
func faultWords() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, k := range fault.Kinds() {
			if !yield(string(k)) {
				return
			}
		}
		maps.Keys(otherFaults)(yield)
	}
}

func (p *parser) fault(l *line) (action, error) {
	word, err := l.next("what goes wrong")
	if err != nil {
		return nil, err
	}
	if target, ok := otherFaults[word]; ok {
		return p.otherFault(l, word, target)
	}
	s := &faultStep{f: fault.Fault{Kind: fault.Kind(word)}}
	if !slices.Contains(fault.Kinds(), s.f.Kind) {
		return nil, fmt.Errorf("fault: %w", unknown("kind", word, slices.Sorted(faultWords())))
	}
	errs := []error{p.faultOptions(l, s)}
	switch k := s.f.Kind; {
	case takesTarget[k]:
		if s.on, err = l.next("master or an agent"); err != nil {
			errs = append(errs, err)
		}
	case len(l.words) > 0 && (k == fault.Drop || k == fault.Duplicate):
		s.f.Message = fault.Message(l.words[0])
		l.words = l.words[1:]
	case len(l.words) > 0 && (k == fault.Cut || k == fault.Delay || k == fault.Unavailable):
		s.f.Part = fault.Part(l.words[0])
		l.words = l.words[1:]
	}
	if s.on == "" {
		s.on = localmesos.MasterName
	}
	role := fault.OnMaster
	if s.on != localmesos.MasterName {
		role = fault.OnAgent
		errs = append(errs, p.agentName(l, s.on))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	_, err = s.f.Check(role)
	return s, err
}

// faultOptions takes what may be anywhere in the line.
func (p *parser) faultOptions(l *line, s *faultStep) error {
	o, err := l.options("framework", "agent", "executor", "task", "state")
	errs := []error{err}
	s.f.Framework, s.f.Agent, s.f.Executor, s.f.Task, s.f.State = o["framework"], o["agent"], o["executor"], o["task"], o["state"]
	if s.f.Agent != "" {
		errs = append(errs, p.agentName(l, s.f.Agent))
	}
	for word, to := range map[string]*fault.Duration{"for": &s.f.For, "by": &s.f.By, "away": &s.f.By} {
		d, err := l.durationAfter(word, time.Duration(*to))
		*to = fault.Duration(d)
		errs = append(errs, err)
	}
	if text, ok, err := l.after("times"); err != nil {
		errs = append(errs, err)
	} else if ok {
		if s.f.Times, err = strconv.Atoi(text); err != nil || s.f.Times < 1 {
			errs = append(errs, l.errorf("times %q is not a positive number", text))
		}
	}
	if s.on, _, err = l.after("on"); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *parser) otherFault(l *line, word string, target bool) (action, error) {
	s := &faultStep{other: word}
	var err error
	if target {
		s.on, err = l.next("master or an agent")
	} else if s.on, _, err = l.after("on"); s.on == "" && word == "resume-offers" {
		s.on = localmesos.MasterName
	}
	if err == nil && s.on != "" && s.on != localmesos.MasterName {
		err = p.agentName(l, s.on)
	}
	if err == nil && word == "replace" && s.on == localmesos.MasterName {
		err = l.errorf("only an agent can be replaced")
	}
	return s, err
}

func (s *faultStep) run(ctx context.Context, r *runner) error {
	switch s.other {
	case "":
		f := s.f
		if f.Agent != "" {
			f.Agent = r.cluster.Find(f.Agent).IP()
		}
		done, err := r.cluster.Fault(s.on, f)
		if err == nil && f.Kind == fault.Cut && f.For == 0 && done.Hits == 0 {
			return errors.New("there was no such stream to cut")
		}
		return err
	case "return", "replace":
		switch n := r.cluster.Find(s.on); {
		case n == nil:
			return r.cluster.StartMaster(ctx)
		case s.other == "replace":
			return n.Replace(ctx)
		default:
			return n.Return(ctx)
		}
	}
	sets := map[string]*fault.Set{localmesos.MasterName: r.cluster.Faults()}
	for _, n := range r.cluster.Agents() {
		sets[n.Name()] = n.Faults()
	}
	for name, set := range sets {
		switch {
		case set == nil || s.on != "" && s.on != name:
		case s.other == "thaw":
			set.ClearKind(fault.Freeze)
		case s.other == "resume-offers":
			set.ClearKind(fault.PauseOffers)
		default:
			set.ClearAll()
		}
	}
	return nil
}
