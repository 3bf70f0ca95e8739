// Package scheduler is Tandem's Mesos framework: it turns declared applications,
// processes and deployments into taskgroups, places them against offers, keeps
// them as declared, and serves the HTTP API under /v1.
//
// One event loop owns the state. Whatever outlives the process is stored before
// it is acted on: a taskgroup's record before its ACCEPT, a status before its
// acknowledgement, a kill before the KILL. So the scheduler may be killed at any
// line and goes on from its store: it subscribes with the same framework id,
// asks Mesos for the truth about every task that it knows, and kills what it
// does not know.
//
// It must never talk to an agent's daemon or to an executor other than through
// Mesos; api.TaskSpec and api.TaskReport are all that they share.
package scheduler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/network"
	"tandem/scheduler/mesos"
	"tandem/scheduler/placement"
	"tandem/scheduler/store"
)

// Store keeps the scheduler's records: versioned compare-and-set, with the
// epoch of the claim checked in every commit so that a scheduler that was
// replaced cannot write. store.Bolt is the implementation on a file.
type Store interface {
	Claim(ctx context.Context) (store.Epoch, error)
	Load(ctx context.Context) ([]store.Record, uint64, error)
	Commit(ctx context.Context, epoch store.Epoch, ops []store.Op) (uint64, error)
	Close() error
}

// Options configure a Scheduler. Zero values of durations and sizes mean the defaults.
type Options struct {
	// Masters is a comma-separated list, see mesos.ParseMasters.
	Masters string
	// DataDir holds the store, scheduler.db.
	DataDir string
	// Listen is the address of the HTTP API; default 127.0.0.1:7070.
	Listen string
	// Cluster is a part of every identifier; a DNS label; default "local".
	Cluster string
	// User is the account that agents start executors as; empty means the scheduler's own.
	User string
	// Name, Role, Principal and Secret are the framework's.
	Name, Role, Principal, Secret string
	// TLS is used for masters and agents that speak https; nil means the system's authorities.
	TLS *tls.Config
	// FailoverTimeout is how long the master keeps the tasks of a scheduler that is away; default 7 days.
	FailoverTimeout time.Duration
	// ExecutorCommand is the shell command that starts tandem-executor on an agent; ExecutorURIs are fetched before.
	ExecutorCommand string
	ExecutorURIs    []string
	// Executor is what Mesos is asked for beside the tasks; default 0.05 cpus, 32 MB, 16 MB.
	Executor placement.Resources
	// ReplaceUnreachable is how long a taskgroup may be unreachable before another takes its place; default 1 minute.
	ReplaceUnreachable time.Duration
	// KillRetry is the first interval at which a KILL is sent again; default 5 s, doubling up to a minute.
	KillRetry time.Duration
	// Store replaces the file in DataDir, for tests.
	Store  Store
	Logger *slog.Logger
	// Now is the clock, for tests.
	Now func() time.Time
}

func (o *Options) setDefaults() {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:7070"
	}
	if o.Cluster == "" {
		o.Cluster = "local"
	}
	if o.Name == "" {
		o.Name = "tandem"
	}
	if o.Role == "" {
		o.Role = "*"
	}
	if o.FailoverTimeout <= 0 {
		o.FailoverTimeout = 7 * 24 * time.Hour
	}
	if o.Executor == (placement.Resources{}) {
		// Mesos asks at least 0.01 cpus, 32 MB and some disk of an executor that gets a group.
		o.Executor = placement.Resources{CPUs: 50, MemMB: 32000, DiskMB: 16000}
	}
	if o.ReplaceUnreachable <= 0 {
		o.ReplaceUnreachable = time.Minute
	}
	if o.KillRetry <= 0 {
		o.KillRetry = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Scheduler is the framework. New makes it, Run makes it work.
type Scheduler struct {
	o       Options
	log     *slog.Logger
	store   Store
	session *mesos.Session
	// http asks agents and masters for what is not part of the scheduler API;
	// secure tells that they speak https.
	http   *http.Client
	secure bool
	// out is the session as the loop uses it.
	out     caller
	api     net.Listener
	loop    *loop
	metrics *metrics
}

// New opens the store, reads the state and listens for the API; nothing is sent to Mesos before Run.
func New(o Options) (*Scheduler, error) {
	o.setDefaults()
	masters, err := mesos.ParseMasters(o.Masters)
	if err != nil {
		return nil, err
	}
	if o.ExecutorCommand == "" {
		return nil, errors.New("no command starts the executor; use --executor-command")
	}
	s := &Scheduler{o: o, log: o.Logger, store: o.Store, metrics: newMetrics()}
	if s.store == nil {
		if s.store, err = store.Open(filepath.Join(o.DataDir, "scheduler.db")); err != nil {
			return nil, err
		}
	}
	if s.loop, err = newLoop(s); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	s.loop.fetch = s.fetchSlaves
	listen := net.ListenConfig{}
	if s.api, err = listen.Listen(context.Background(), "tcp", o.Listen); err != nil {
		if busy := portTaken(o.Listen); busy != nil {
			err = busy
		}
		return nil, errors.Join(fmt.Errorf("listen on %s: %w; choose another address with --listen", o.Listen, err), s.store.Close())
	}
	s.http = newMesosHTTP(o.TLS)
	for _, m := range masters {
		s.secure = s.secure || m.Scheme == "https"
	}
	s.session = mesos.New(mesos.Config{
		Masters: masters, Framework: s.framework(), Principal: o.Principal, Secret: o.Secret, TLS: o.TLS, Logger: o.Logger,
	}, s.loop)
	s.out = s.session
	return s, nil
}

// portTaken names who listens, when that is why listening failed.
func portTaken(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil //nolint:nilerr // then listening has failed for another reason, which is reported
	}
	n, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	if err != nil || n == 0 {
		return nil //nolint:nilerr // as above
	}
	return network.CheckFree(host, n, "tcp")
}

func (s *Scheduler) framework() mesoslib.FrameworkInfo {
	checkpoint, failover := true, s.o.FailoverTimeout.Seconds()
	info := mesoslib.FrameworkInfo{
		User: s.o.User, Name: s.o.Name, Checkpoint: &checkpoint, FailoverTimeout: &failover,
		Roles: []string{s.o.Role},
		Capabilities: []mesoslib.FrameworkInfo_Capability{
			{Type: mesoslib.FrameworkInfo_Capability_MULTI_ROLE},
			{Type: mesoslib.FrameworkInfo_Capability_PARTITION_AWARE},
			{Type: mesoslib.FrameworkInfo_Capability_TASK_KILLING_STATE},
			{Type: mesoslib.FrameworkInfo_Capability_RESERVATION_REFINEMENT},
		},
	}
	if s.o.Principal != "" {
		info.Principal = &s.o.Principal
	}
	return info
}

// Addr is the address of the HTTP API.
func (s *Scheduler) Addr() net.Addr { return s.api.Addr() }

// Run works until ctx ends; then it disconnects and leaves everything running,
// for its successor to take over within the failover timeout. An error means
// that it cannot go on.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.http.CloseIdleConnections()
	var workers sync.WaitGroup
	fail := func(what string, err error) {
		if err != nil {
			cancel(fmt.Errorf("%s: %w", what, err))
		}
	}
	// There is no limit to the time of an answer: a log may be followed for days.
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	workers.Go(func() {
		if err := server.Serve(s.api); !errors.Is(err, http.ErrServerClosed) {
			fail("serve the API", err)
		}
	})
	workers.Go(func() { fail("scheduler", s.loop.run(ctx)) })
	workers.Go(func() { fail("Mesos session", s.session.Run(ctx)) })

	<-ctx.Done()
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer done()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close() // a reader that follows a log does not end by itself
	}
	workers.Wait()
	err := s.store.Close()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// Close releases what New acquired, when Run is not called.
func (s *Scheduler) Close() error { return errors.Join(s.api.Close(), s.store.Close()) }
