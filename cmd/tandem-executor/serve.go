package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/agentlink"
	"tandem/executor/container"
	"tandem/executor/container/policy"
	"tandem/executor/process"
	"tandem/internal/failpoint"
	"tandem/internal/journal"
)

// ownPatience is how long the journal's lock of our id may be held by the
// reaper, which takes it while it removes what a dead executor of the same id left.
const ownPatience = 30 * time.Second

// serve wires the executor and runs it to its end.
func serve(ctx context.Context, o *options, cfg executor.Config, log *slog.Logger) error {
	j, err := journal.Open(filepath.Join(o.dataDir, "journal"))
	if err != nil {
		return fmt.Errorf("data directory %s: %w", o.dataDir, err)
	}
	owner, err := own(ctx, j, cfg.ExecutorID)
	if err != nil {
		return err
	}
	// The lock goes last: from then on the reaper takes what is left.
	defer func() {
		if err := owner.Close(); err != nil {
			log.Error("journal", "error", err)
		}
	}()
	e := executor.New(executor.Options{
		Config: cfg,
		Link: agentlink.New(agentlink.Config{
			Endpoint: cfg.Endpoint, DomainSocket: cfg.DomainSocket, TLS: cfg.TLS, Token: cfg.Token,
			FrameworkID: cfg.FrameworkID, ExecutorID: cfg.ExecutorID,
		}),
		Runtimes: map[api.TaskKind]func() (executor.Runtime, error){
			api.TaskContainer: func() (executor.Runtime, error) {
				allowed, err := policy.Load(o.policy)
				if err != nil {
					return nil, err
				}
				return container.New(container.Options{
					Policy: allowed, LogSize: int64(o.logSize) << 20, LogFiles: o.logFiles,
					Host: o.dockerHost, Journal: owner, PublishAddress: o.publishAddress, Logger: log,
					Deny:       []string{o.processdSocket, o.dataDir},
					ImageCache: imageCache(o.dataDir),
				})
			},
			api.TaskProcess: func() (executor.Runtime, error) {
				allowed, err := policy.Load(o.policy)
				if err != nil {
					// What it says of containers is no reason to run no processes; but nobody
					// gets in.
					log.Error("processes take no messages", "error", err)
					allowed = &policy.Policy{File: o.policy, Messages: []string{}}
				}
				return process.New(process.Options{Socket: o.processdSocket, Journal: owner, Policy: allowed, Logger: log})
			},
		},
		Warm:           warm(),
		PublishAddress: o.publishAddress,
		Abandoned: func() (bool, error) {
			records, err := j.Abandoned()
			return len(records) > 0, err
		},
		Left: j.Left,
		Idle: shrink,
		Log:  log,
	})
	return e.Run(ctx)
}

// imageCache is where the executors of an agent remember images. Where points are
// armed there is none: the calls of a path are counted then, and must be the same each time.
func imageCache(dataDir string) string {
	if failpoint.Armed() {
		return ""
	}
	return filepath.Join(dataDir, "images")
}

// warm are the kinds that get ready for their first task while the executor subscribes:
// processes, whose start takes a few milliseconds. A container's takes a hundred times as
// long, and an executor of processes never touches the engine. Where points are armed
// there is none, as above.
func warm() []api.TaskKind {
	if failpoint.Armed() {
		return nil
	}
	return []api.TaskKind{api.TaskProcess}
}

// shrink gives memory back once the tasks run. One executor stands beside every
// taskgroup of an agent, mostly idle; before that, launching fast counts for more.
func shrink() {
	debug.SetGCPercent(25)
	debug.FreeOSMemory()
}

// own takes the executor's lock in the journal, waiting while the reaper has it.
func own(ctx context.Context, j *journal.Journal, id string) (*journal.Owner, error) {
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	for {
		owner, err := j.Own(id)
		if !errors.Is(err, journal.ErrOwned) {
			return owner, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("another executor of the same id runs on this agent: %w", err)
		}
	}
}
