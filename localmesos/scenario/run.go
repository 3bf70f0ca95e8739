package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tandem/localmesos"
)

// Options of a run.
type Options struct {
	// Dir is for all that the cluster keeps; a temporary one, removed after a run
	// that went well, when empty.
	Dir string
	// Progress is told of every step when it begins (with Seconds 0 and no
	// outcome) and when it has ended; may be nil.
	Progress func(begins bool, s StepResult)
	// Limit bounds the run; DefaultLimit when 0.
	Limit time.Duration
}

// DefaultLimit bounds a run that says nothing else.
const DefaultLimit = 10 * time.Minute

// Result is what came of a scenario.
type Result struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	// TimedOut tells that what failed was a wait.
	TimedOut bool         `json:"timed_out,omitempty"`
	Seconds  float64      `json:"seconds"`
	Steps    []StepResult `json:"steps"`
	// Error is what went wrong beside the steps, as when the cluster could not be ended.
	Error string `json:"error,omitempty"`
	// Log is the cluster's log, of a run that went wrong.
	Log string `json:"log,omitempty"`
}

// StepResult is what came of a step.
type StepResult struct {
	Line    int     `json:"line"`
	Text    string  `json:"text"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// runner is a run.
type runner struct {
	dir        string
	log        *slog.Logger
	http       *http.Client
	cluster    *localmesos.Cluster
	frameworks map[string]*framework
	ctx        context.Context // of the frameworks
	work       sync.WaitGroup
}

// Run runs a scenario until its end or the first step that fails. Everything
// that it started has ended when it returns.
func (s *Scenario) Run(ctx context.Context, o Options) Result {
	began := time.Now()
	out := Result{File: s.File}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("%w: the whole scenario took more than %s", ErrTimeout, o.Limit))
	defer cancel()
	err := s.run(ctx, o, &out)
	if err != nil {
		out.Error = err.Error()
	}
	out.OK = err == nil && len(out.Steps) == len(s.steps) && (len(out.Steps) == 0 || out.Steps[len(out.Steps)-1].OK)
	out.Seconds = time.Since(began).Seconds()
	return out
}

func (s *Scenario) run(ctx context.Context, o Options, out *Result) (err error) {
	dir := o.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "tandem-scenario-"); err != nil {
			return err
		}
		defer func() {
			if err == nil && out.Log == "" {
				err = os.RemoveAll(dir)
			}
		}()
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "starts"), 0o700); err != nil {
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(dir, "mesos.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	r := &runner{dir: dir, log: slog.New(slog.NewTextHandler(logFile, nil)), frameworks: map[string]*framework{},
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	var stop context.CancelFunc
	r.ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		stop()
		r.work.Wait()
		if r.cluster != nil {
			err = errors.Join(err, r.cluster.Close())
		}
	}()
	for _, x := range s.steps {
		if !r.step(ctx, x, o, out) {
			out.Log = logFile.Name()
			break
		}
	}
	return nil
}

// step runs one step and tells what came of it.
func (r *runner) step(ctx context.Context, x step, o Options, out *Result) bool {
	result := StepResult{Line: x.line, Text: x.text}
	if o.Progress != nil {
		o.Progress(true, result)
	}
	r.log.Info("step", "line", x.line, "text", x.text)
	began := time.Now()
	err := x.do.run(ctx, r)
	if ctx.Err() != nil && err == nil {
		err = context.Cause(ctx)
	}
	result.OK, result.Seconds = err == nil, time.Since(began).Seconds()
	if err != nil {
		result.Error = err.Error()
		out.TimedOut = errors.Is(err, ErrTimeout)
		r.log.Error("step failed", "line", x.line, "error", err)
	}
	out.Steps = append(out.Steps, result)
	if o.Progress != nil {
		o.Progress(false, result)
	}
	return err == nil
}

// pollPause is the time between two looks at a condition.
const pollPause = 20 * time.Millisecond

func pause(ctx context.Context) error {
	select {
	case <-time.After(pollPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// until looks again and again until nothing is in the way any more.
func (r *runner) until(ctx context.Context, within time.Duration, check func(context.Context) (string, error)) error {
	deadline := time.Now().Add(within)
	for {
		problem, err := check(ctx)
		if err != nil || problem == "" {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%w; %s", err, problem)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w after %s: %s", ErrTimeout, within, problem)
		}
	}
}

// mark is what the processes of a task carry, and no others.
func (r *runner) mark(task string) string { return r.dir + "/" + task }

// startsFile gets a line whenever a task is started.
func (r *runner) startsFile(task string) string { return filepath.Join(r.dir, "starts", task) }
