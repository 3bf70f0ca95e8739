// Package agent is the embedded Mesos agent: it starts executors as real
// processes in real sandboxes, carries their status updates to the master until
// they are acknowledged, and finds its executors again after a crash, all as
// Apache Mesos's agent lets it be seen from outside.
//
// It is for localmesos on one machine, in a process of its own or inside
// another program or test. It must never act on a task before what a later agent
// needs to know of it is on disk, and never end an executor of a checkpointing
// framework because it ends itself.
package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/agent/internal/fetch"
	"tandem/localmesos/agent/internal/group"
	"tandem/localmesos/agent/internal/store"
	"tandem/localmesos/agent/internal/updates"
	"tandem/localmesos/fault"
	"tandem/localmesos/internal/ssl"
)

// Agent is one agent. Its state belongs to its event loop: fields below the
// line are touched by functions that run there, and by Start before it runs.
type Agent struct {
	flags    Flags
	log      *slog.Logger
	clock    clock
	ip       string
	tokens   *tokens
	tls      *tls.Config // of the server; nil for plain HTTP
	listener net.Listener
	server   *http.Server
	socket   *socket // for executors; nil without
	cache    *fetch.Cache
	fetches  fetchCounts
	store    *store.Store
	launcher *container.Launcher
	faults   *fault.Set // nil unless enabled
	loop     *loop
	work     sync.WaitGroup // every goroutine but the server's
	orphans  sync.WaitGroup // those of work that end containers found at the start
	ctx      context.Context
	cancel   context.CancelCauseFunc
	started  time.Time

	registeredOnce sync.Once
	registered     chan struct{}
	endOnce        sync.Once
	ended          chan struct{}

	// ---- owned by the event loop
	info       mesos.AgentInfo
	frameworks map[string]*framework
	completed  []*framework
	updates    *updates.Manager
	group      group.Group // what is recorded and not on disk yet
	outputs    []func()    // what waits for it
	master     masterLink
	stopping   bool
	garbage    garbage
	endings    map[mesos.TaskState]int // tasks that ended, by how
}

// Limits of the history that /state shows.
const (
	maxCompletedFrameworks = 50
	maxCompletedExecutors  = 150
	maxCompletedTasks      = 200
)

// New makes an agent. It reads nothing and starts nothing yet.
func New(f Flags) (*Agent, error) {
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("agent flags: %w", err)
	}
	if len(f.CommandExecutor) == 0 {
		argv, err := defaultCommandExecutor()
		if err != nil {
			return nil, err
		}
		f.CommandExecutor = argv
	}
	a := &Agent{flags: f, log: f.Logger, clock: realClock{}, ip: f.IP, registered: make(chan struct{}), ended: make(chan struct{}),
		frameworks: map[string]*framework{}, endings: map[mesos.TaskState]int{}}
	if a.log == nil {
		a.log = slog.Default()
	}
	if a.ip == "" {
		a.ip = "127.0.0.1"
	}
	info, err := describe(f)
	if err != nil {
		return nil, fmt.Errorf("agent flags: %w", err)
	}
	a.info = info
	if a.tokens, err = newTokens(f); err != nil {
		return nil, fmt.Errorf("agent flags: %w", err)
	}
	if a.tls, err = ssl.Server(f.SSL); err != nil {
		return nil, fmt.Errorf("agent flags: %w", err)
	}
	if _, err = ssl.Client(f.SSL); err != nil {
		return nil, fmt.Errorf("agent flags: %w", err)
	}
	return a, nil
}

// Start takes up the work directory, listens, finds the executors of an earlier
// agent and goes to the master, for which it does not wait. ctx bounds the start
// only; Close, Kill or Shutdown ends the agent.
func (a *Agent) Start(ctx context.Context) (err error) {
	a.started = a.clock.Now()
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			a.cancel(err)
			a.ctx = nil // what was not started needs no end
		}
	}()
	if a.store, err = store.Open(a.flags.WorkDir, a.log); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.store.Close()
		}
	}()
	if a.listener, err = listen(ctx, net.JoinHostPort(a.ip, strconv.Itoa(a.flags.Port))); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.listener.Close()
		}
	}()
	if tcp, ok := a.listener.Addr().(*net.TCPAddr); ok {
		port := int32(tcp.Port)
		a.info.Port = &port
	}
	if err = a.listenOnSocket(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.socket.close()
		}
	}()
	if a.cache, err = newCache(a.flags, a.store.Work()); err != nil {
		return err
	}
	a.launcher = container.NewLauncher(a.flags.CgroupsRoot)
	a.loop = newLoop()
	a.loop.after = a.afterEach
	a.startFaults()
	a.updates = updates.New(loopClock{a}, a.log, &a.group, a.forward)
	a.store.Strict, a.updates.Strict, a.updates.Aside = a.flags.Strict, a.flags.Strict, a.store.Aside
	if err := a.recover(); err != nil {
		return err
	}
	a.log.Info("agent started", "url", a.URL(), "work_dir", a.store.Work(), "containers", a.launcher.String())
	a.server = &http.Server{Handler: a.withFaults(a.handler()), ConnContext: a.faults.ConnContext, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	a.work.Go(func() { a.loop.run(a.ctx) })
	a.work.Go(func() {
		l := a.listener
		if a.tls != nil {
			l = tls.NewListener(l, a.tls)
		}
		if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.end(fmt.Errorf("serving HTTP: %w", err))
		}
	})
	a.serveSocket()
	return nil
}

// listen waits a moment for an address in use: it may be that of an agent which
// just ended, kept by a process that is just being started.
func listen(ctx context.Context, address string) (net.Listener, error) {
	const tries, pause = 50, 10 * time.Millisecond
	var lc net.ListenConfig
	for i := 0; ; i++ {
		l, err := lc.Listen(ctx, "tcp", address)
		if err == nil {
			return l, nil
		}
		if i == tries || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listening on %s: %w; choose another --ip or --port", address, err)
		}
		time.Sleep(pause)
	}
}

// URL is the agent's base URL, once it is started: "http://127.0.0.1:5051", or
// https with TLS.
func (a *Agent) URL() string {
	if a.tls != nil {
		return "https://" + a.address()
	}
	return "http://" + a.address()
}

func (a *Agent) address() string {
	return net.JoinHostPort(a.ip, strconv.Itoa(int(a.info.GetPort())))
}

// pid is the agent's libprocess name, as frameworks and executors know it.
func (a *Agent) pid() string { return "slave(1)@" + a.address() }

// Registered is closed once the master has accepted the agent for the first time.
func (a *Agent) Registered() <-chan struct{} { return a.registered }

// Done is closed when the agent has ended by itself or was ended; Err tells why.
func (a *Agent) Done() <-chan struct{} { return a.ended }

// Err is why the agent ended: nil while it lives, after Close, Kill and Shutdown,
// and once an agent that was only to clean up is done.
func (a *Agent) Err() error {
	select {
	case <-a.ended:
		if err := context.Cause(a.ctx); !errors.Is(err, errClosed) && !errors.Is(err, errCleanedUp) {
			return err
		}
	default:
	}
	return nil
}

// errClosed is the cause of an end that the owner wanted.
var errClosed = errors.New("the agent is closed")

// Close ends the agent in an orderly way: executors of frameworks that do not
// checkpoint are shut down first, with the grace period; the others go on and
// wait for the next agent. Waiting is bounded by the grace periods.
func (a *Agent) Close() error {
	a.stopExecutors(false)
	a.end(errClosed)
	if a.launcher != nil {
		a.launcher.Close()
	}
	return nil
}

// Kill ends the agent as kill -9 would: connections break, nothing is said or
// saved any more, executors stay.
func (a *Agent) Kill() { a.end(errClosed) }

// Shutdown ends the agent for good: all executors are shut down, with the grace
// period, the master is told, and the next agent in this work directory is a
// new one. A ctx that ends early makes it a Close without waiting.
func (a *Agent) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { a.end(errClosed) })
	defer stop()
	a.stopExecutors(true)
	err := a.store.ForgetAgent()
	a.unregister()
	a.end(errClosed)
	a.launcher.Close()
	return errors.Join(err, ctx.Err())
}

// stopExecutors shuts executors down and waits until they are gone.
func (a *Agent) stopExecutors(all bool) {
	if a.ctx == nil {
		return
	}
	a.faults.Close() // a frozen agent could not end
	gone := make(chan struct{})
	ok := a.loop.do(a.ctx, func() {
		a.stopping = true
		waiting := 0
		done := func() {
			if waiting--; waiting == 0 {
				close(gone)
			}
		}
		for _, fw := range a.frameworks {
			for _, e := range fw.executors {
				if (all || !fw.checkpoint()) && e.state != terminated {
					waiting++
					e.onExit = append(e.onExit, done)
					a.shutdownExecutor(e)
				}
			}
		}
		if waiting == 0 {
			close(gone)
		}
	})
	if !ok {
		return
	}
	a.orphans.Wait()
	// The grace period is that of the executors; more is for the killing itself.
	const slack = 10 * time.Second
	select {
	case <-gone:
	case <-a.ctx.Done():
	case <-time.After(a.longestGrace() + slack):
		a.log.Error("some executors could not be ended")
	}
}

func (a *Agent) longestGrace() time.Duration {
	longest := a.flags.ExecutorShutdownGracePeriod
	a.loop.do(a.ctx, func() {
		for _, fw := range a.frameworks {
			for _, e := range fw.executors {
				longest = max(longest, e.grace(a.flags))
			}
		}
	})
	return longest
}

// end drops everything at once; what has been saved is what a later agent knows.
func (a *Agent) end(why error) {
	if a.ctx == nil {
		return
	}
	a.endOnce.Do(func() {
		a.faults.Close()
		a.cancel(why)
		// Not from here: the loop may be the caller.
		go func() {
			a.server.Close()
			a.socket.close()
			a.work.Wait()
			a.dropAll()
			a.store.Close()
			close(a.ended)
		}()
	})
	if errors.Is(why, errClosed) {
		<-a.ended
	}
}

// dropAll lets go of timers, streams and processes. The event loop has ended.
func (a *Agent) dropAll() {
	a.updates.Close()
	a.group.Close()
	for _, fw := range a.frameworks {
		for _, e := range fw.executors {
			e.stopTimers()
			if e.stream != nil {
				e.stream.Close()
			}
			if e.container != nil {
				e.container.Close()
			}
		}
	}
}

// hostname is the machine's name unless a flag says otherwise.
func hostname(f Flags) (string, error) {
	if f.Hostname != "" {
		return f.Hostname, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding the machine's name: %w; give --hostname", err)
	}
	return name, nil
}
