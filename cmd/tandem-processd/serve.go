package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"tandem/executor/container"
	"tandem/internal/unixhttp"
	"tandem/internal/version"
	"tandem/processdaemon"
)

// server is one run of the daemon's program.
type server struct {
	o      *options
	level  *slog.LevelVar
	log    *slog.Logger
	notify notifier
	next   *successor
	// signals are SIGUSR2 and SIGHUP.
	signals chan os.Signal
}

// serve runs the daemon until the context ends.
func serve(ctx context.Context, o *options, stderr io.Writer) error {
	s := &server{o: o, level: new(slog.LevelVar), notify: newNotifier(), next: findSuccessor(), signals: make(chan os.Signal, 4)}
	s.level.Set(o.level)
	s.log = newLog(stderr, s.level)
	signal.Notify(s.signals, syscall.SIGUSR2, syscall.SIGHUP)
	defer signal.Stop(s.signals)
	// It idles for years beside what it is there for: memory counts more than speed.
	debug.SetGCPercent(40)
	// What the daemon makes for tasks shall not depend on who started it.
	syscall.Umask(0o022)
	l, err := listen(ctx, o)
	if err != nil {
		return err
	}
	defer func() { l.Close() }()
	for {
		path, own := l.Path(), l.Own()
		kept, err := s.once(ctx, l)
		if kept == nil {
			return err
		}
		if ctx.Err() == nil {
			err = s.next.become(kept, path, own, s.notify)
			signal.Notify(s.signals, syscall.SIGUSR2, syscall.SIGHUP)
			s.log.Error("the upgrade failed; this program goes on", "err", err)
		}
		if l, err = resume(kept, path, o.group, own); err != nil {
			return err
		}
	}
}

// once runs a daemon until the context ends, or until it is to be replaced: then
// it has ended, and its socket is returned.
func (s *server) once(ctx context.Context, l *unixhttp.Listener) (*os.File, error) {
	o := s.o
	d, err := processdaemon.New(processdaemon.Options{
		DataDir: o.dataDir, Workspace: o.workspace, Version: version.String(), Log: s.log, OwnProgram: true,
		DefaultUser: o.defaultUser, DefaultPids: o.defaultPids, StartTimeout: o.startTimeout, PrepareTimeout: o.prepareTimeout,
		LogSize: int64(o.outputMB) << 20, LogFiles: o.outputFiles,
		Cleaners: map[string]processdaemon.Cleaner{
			container.Kind: container.NewCleaner(o.dockerHost), container.UploadKind: container.NewUploadCleaner(o.dockerHost),
		},
	})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	s.log.Info("serving", "socket", l.Path())
	if err := s.notify.tell("READY=1"); err != nil {
		s.log.Warn("systemd does not know that the daemon is ready", "err", err)
	}
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var kept *os.File
	var beside sync.WaitGroup
	beside.Go(func() {
		s.notify.watchdog(sctx, watchdogInterval(), func(ctx context.Context) error { return answers(ctx, l.Path(), d) })
	})
	beside.Go(func() {
		kept = s.obey(sctx, l, d)
		if kept != nil {
			cancel()
		}
	})
	serveErr := d.Serve(sctx, l)
	cancel()
	beside.Wait()
	if kept != nil && serveErr == nil {
		return kept, nil
	}
	if err := s.notify.tell("STOPPING=1"); err != nil {
		s.log.Warn("systemd does not know that the daemon stops", "err", err)
	}
	if o.killOnExit {
		s.log.Info("stopping all processes", "grace", o.killGrace)
		const more = 15 * time.Second
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.killGrace+more)
		defer cancel()
		serveErr = errors.Join(serveErr, d.StopAll(kctx, o.killGrace))
	}
	s.log.Info("ended", "processes_left_running", !o.killOnExit)
	return nil, serveErr
}

// obey does what signals ask for. It returns the socket when the daemon is to be
// replaced, and nil when the context has ended.
func (s *server) obey(ctx context.Context, l *unixhttp.Listener, d *processdaemon.Daemon) *os.File {
	for {
		var sig os.Signal
		select {
		case <-ctx.Done():
			return nil
		case sig = <-s.signals:
		}
		if sig == syscall.SIGHUP {
			s.reload()
			continue
		}
		s.log.Info("upgrade", "program", s.next.path)
		err := s.next.check(ctx, d.CombinedOutput)
		var kept *os.File
		if err == nil {
			kept, err = l.Keep()
		}
		if err != nil {
			s.log.Error("the program cannot take over; this one goes on", "err", err)
			continue
		}
		if err := s.notify.tell(reloading()); err != nil {
			s.log.Warn("systemd does not know of the upgrade", "err", err)
		}
		return kept
	}
}

// reload reads the configuration again. Only the level of the log can change while
// the daemon runs; for the rest an upgrade takes milliseconds and interrupts nobody.
func (s *server) reload() {
	var o options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags(f)
	err := f.Parse(s.next.args[1:])
	if err == nil {
		err = o.settle(f)
	}
	if err != nil {
		s.log.Error("the configuration is not taken over", "err", err)
		return
	}
	s.level.Set(o.level)
	o.level, o.logLevel, o.from, o.config = s.o.level, s.o.logLevel, s.o.from, s.o.config
	s.log.Info("configuration read again", "log_level", s.level.Level(), "others_changed", !o.same(s.o))
	if !o.same(s.o) {
		s.log.Warn("of the configuration only log-level is taken over now; send SIGUSR2 for the rest")
	}
}

// answers asks the daemon through its own socket, and looks at its locks, so that
// whoever watches it knows that it serves.
func answers(ctx context.Context, socket string, d *processdaemon.Daemon) error {
	c := unixhttp.Client(socket)
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://processd/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the daemon answers %s", resp.Status)
	}
	d.List("")
	return nil
}
