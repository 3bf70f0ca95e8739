// Package local runs the whole stack on one machine for "tandem local": an
// embedded Mesos master and agents, the scheduler, and the process daemon as a
// child process. It is for a laptop and for tests; a cluster runs the same
// parts as programs of their own on Apache Mesos.
//
// It must never leave anything behind that its data directory does not know
// of: what a killed stack left is adopted or ended by the next one.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tandem/cmd/tandem/exit"
	"tandem/internal/term"
	"tandem/internal/version"
	"tandem/localmesos/agent"
	"tandem/localmesos/master"
)

// masterIP is where the embedded master listens.
const masterIP = "127.0.0.1"

// Limits of the steps of a start and a stop.
const (
	readyTimeout     = 60 * time.Second
	schedulerTimeout = 15 * time.Second
	suspendTimeout   = 4 * time.Minute
	// recoveryTimeout is how long executors wait for a stack that was killed or
	// stopped with --keep.
	recoveryTimeout = 15 * time.Minute
)

// stack is what runs.
type stack struct {
	o        Options
	out      *term.Output
	dir      *dataDir
	run      string // directory for sockets
	bin      binaries
	machines []machine
	log      *slog.Logger
	logFile  *os.File

	daemon    *supervisor
	master    *master.Master
	agents    []*agent.Agent
	scheduler *schedulerServer
	// failed gets the first part that ends by itself.
	failed chan error
}

// Run starts the stack, says so on out, and stops it when ctx ends or a part of
// it fails. A signal during the stop ends it at once.
func Run(ctx context.Context, o Options, out, errOut *term.Output) error {
	if err := o.validate(); err != nil {
		return err
	}
	s := &stack{o: o, out: out, machines: o.machines(), failed: make(chan error, 1)}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer s.dir.Close()
	s.openLogs(errOut)
	defer s.logFile.Close()

	// Signals are counted here: the first one ends ctx, the second one forces.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, term.StopSignals()...)
	defer signal.Stop(signals)

	progress := term.NewProgress(errOut)
	err := s.start(ctx, progress)
	progress.Done()
	counted := false
	if err == nil {
		s.announce()
		select {
		case <-ctx.Done():
		case <-signals:
			counted = true
		case err = <-s.failed:
			fmt.Fprintf(errOut, "a part of the stack failed; stopping the others: %v\n", err)
		}
	}
	if ctx.Err() != nil && !counted {
		takeFirst(signals)
	}
	return errors.Join(err, s.stop(signals, errOut))
}

// prepare checks everything that can be checked before anything is started.
func (s *stack) prepare(ctx context.Context) (err error) {
	self, err := selfPath()
	if err != nil {
		return err
	}
	if s.bin, err = findBinaries(self, lookPath); err != nil {
		return err
	}
	if s.dir, err = openDataDir(s.o.DataDir, "http://"+s.o.Listen); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.dir.Discard()
		}
	}()
	if err := checkPorts(ctx, s.o.addresses(s.machines)); err != nil {
		return err
	}
	if err := s.checkLastRun(); err != nil {
		return err
	}
	if s.logFile, err = openLog(s.dir.join("log", "tandem.log")); err != nil {
		return err
	}
	s.run, err = runtimeDir(s.dir.path, s.o.Getenv, os.Geteuid())
	return err
}

// checkLastRun decides what to do with what the last stack left: after a clean
// stop the embedded Mesos starts afresh; otherwise its executors may still run,
// and only agents at the same addresses can take them up again.
func (s *stack) checkLastRun() error {
	last, found, err := s.dir.readState()
	if err != nil || !found {
		return err
	}
	if last.Clean {
		return os.RemoveAll(s.dir.join("mesos"))
	}
	if last.Master != s.o.MasterPort || !sameMachines(last.Machines, s.machines) {
		return exit.Errorf(exit.Refused, `the last stack in %s was killed or stopped with --keep, and its agents were others (%s): start it with the same settings, so that what it runs can be taken up; after a clean stop they may change`,
			s.dir.path, describeMachines(last))
	}
	// Disk and memory that were not asked for are what the agents had before.
	s.machines = last.Machines
	return nil
}

func sameMachines(a, b []machine) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].IP != b[i].IP || a[i].Port != b[i].Port || a[i].Attributes != b[i].Attributes || a[i].Asked != b[i].Asked {
			return false
		}
	}
	return true
}

func describeMachines(st state) string {
	parts := []string{fmt.Sprintf("--agents %d --master-port %d", len(st.Machines), st.Master)}
	if len(st.Machines) > 0 {
		parts = append(parts, fmt.Sprintf("--agent-port %d", st.Machines[0].Port))
	}
	for _, m := range st.Machines {
		if m.Attributes != "" {
			parts = append(parts, fmt.Sprintf("--attributes '%s'", m.Attributes))
		}
	}
	for _, m := range st.Machines {
		if m.Asked != "" {
			parts = append(parts, fmt.Sprintf("--resources '%s'", m.Asked))
		}
	}
	return strings.Join(parts, " ")
}

func (s *stack) openLogs(errOut *term.Output) {
	var h slog.Handler = slog.NewTextHandler(s.logFile, nil)
	if s.o.Verbose {
		h = both{h, slog.NewTextHandler(errOut, nil)}
	}
	s.log = slog.New(h)
	s.log.Info("tandem local starts", "version", version.Version, "agents", len(s.machines))
}

// socket is the process daemon's.
func (s *stack) socket() string { return s.run + "/processd.sock" }

// start starts everything in order and waits until the scheduler is ready. What
// was started when it fails is for stop to end.
func (s *stack) start(ctx context.Context, progress *term.Progress) error {
	if err := s.dir.writeState(state{Machines: s.machines, Master: s.o.MasterPort}); err != nil {
		return fmt.Errorf("write the state of this run: %w", err)
	}
	progress.Update("starting %s", processdBinary)
	var err error
	s.daemon, err = supervise(ctx, func(ctx context.Context) (*daemon, error) {
		return startDaemon(ctx, s.bin.processd, s.dir, s.socket(), s.childEnv())
	}, s.fail)
	if err != nil {
		return err
	}
	progress.Update("starting the Mesos master and %s", count(len(s.machines), "agent"))
	if err := s.startMesos(ctx); err != nil {
		return err
	}
	progress.Update("starting the scheduler")
	if s.scheduler, err = s.startScheduler(ctx); err != nil {
		return err
	}
	progress.Update("waiting until the scheduler is ready")
	return s.waitReady(ctx)
}

func (s *stack) startMesos(ctx context.Context) error {
	m, err := master.New(master.Flags{
		IP: masterIP, Port: s.o.MasterPort, WorkDir: s.dir.join("mesos", "master"), Logger: s.log.With("part", "master"),
	})
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return errors.Join(err, m.Close())
	}
	s.master = m
	for _, mc := range s.machines {
		f := agent.DefaultFlags()
		f.IP, f.Port, f.Hostname = mc.IP, mc.Port, mc.IP
		f.Master, f.WorkDir = m.Address(), s.dir.join("mesos", mc.Name)
		f.Resources, f.Attributes = mc.Resources, mc.Attributes
		f.RecoveryTimeout = recoveryTimeout
		f.SwitchUser = os.Geteuid() == 0
		f.ExecutorEnvironment = s.executorEnv(mc)
		f.Logger = s.log.With("part", mc.Name)
		a, err := agent.New(f)
		if err != nil {
			return fmt.Errorf("%s: %w", mc.Name, err)
		}
		if err := a.Start(ctx); err != nil {
			return fmt.Errorf("start %s: %w", mc.Name, err)
		}
		s.agents = append(s.agents, a)
		go func() {
			<-a.Done()
			if err := a.Err(); err != nil {
				s.fail(fmt.Errorf("%s: %w", mc.Name, err))
			}
		}()
	}
	for i, a := range s.agents {
		select {
		case <-a.Registered():
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(readyTimeout):
			return fmt.Errorf("%s did not register with the master within %s; see %s", s.machines[i].Name, readyTimeout, s.logFile.Name())
		}
	}
	return nil
}

// fail records the first failure of a part.
func (s *stack) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// waitReady waits until the scheduler says that it is subscribed and has its state.
func (s *stack) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.o.Listen+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		select {
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("the scheduler is not ready: %w; see %s", err, s.logFile.Name())
		case <-tick.C:
		}
	}
}

// stopMesos ends the agents, with all that they run unless it is to be kept,
// and then the master.
func (s *stack) stopMesos(ctx context.Context) error {
	var g errgroup.Group
	var mu sync.Mutex
	var errs []error
	for i, a := range s.agents {
		g.Go(func() error {
			var err error
			if s.o.Keep {
				err = a.Close()
			} else {
				err = a.Shutdown(ctx)
			}
			if err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("stop %s: %w", s.machines[i].Name, err))
				mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs, all of them
	if s.master != nil {
		errs = append(errs, s.master.Close())
	}
	return errors.Join(errs...)
}
