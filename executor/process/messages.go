package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/execstream"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

var (
	_ executor.Guarded         = (*Runtime)(nil)
	_ executor.Interactive     = (*Runtime)(nil)
	_ executor.ResourceUpdater = (*Runtime)(nil)
	_ executor.Uploader        = (*Runtime)(nil)
	_ executor.Reloader        = (*Runtime)(nil)
	_ executor.Restarter       = (*Runtime)(nil)
	_ executor.LogReader       = (*Runtime)(nil)
)

// AllowMessage asks the operator's policy.
func (r *Runtime) AllowMessage(t api.MessageType) error { return r.opt.Policy.Message(t) }

// AllowSession asks the operator's policy.
func (r *Runtime) AllowSession(loopback bool) error { return r.opt.Policy.Session(loopback) }

// Session runs a command beside a process, as its user, in its workPath, with its
// environment and in its control group. The daemon kills it when the context ends.
func (r *Runtime) Session(ctx context.Context, taskID string, req api.ExecRequest, t execstream.Terminal) (int, error) {
	return r.c.Session(ctx, taskID, protocol.SessionRequest{
		Argv: req.Command, Stdin: req.Stdin, TTY: req.TTY, Width: req.Width, Height: req.Height,
	}, t)
}

// LogFiles returns the files that a process's logPath names.
func (r *Runtime) LogFiles(ctx context.Context, taskID string) ([]api.LogFile, error) {
	var files []protocol.LogFile
	err := r.patiently(ctx, func() (err error) {
		files, err = r.c.LogFiles(ctx, taskID)
		return err
	})
	out := make([]api.LogFile, 0, len(files))
	for _, f := range files {
		out = append(out, api.LogFile(f))
	}
	return out, err
}

// Logs copies one of those files. One that is followed goes on over a restart of the daemon.
func (r *Runtime) Logs(ctx context.Context, taskID string, req api.LogRequest, w io.Writer) error {
	return r.c.LogLines(ctx, taskID, "log/"+req.File, req.Tail, req.Follow, w)
}

// UpdateResources changes the limits of a running process, without a restart.
func (r *Runtime) UpdateResources(ctx context.Context, taskID string, u api.ResourceUpdate) error {
	return r.patiently(ctx, func() error {
		return r.c.SetLimits(ctx, taskID, limitsOf(u.Requests, u.Limits))
	})
}

// Upload puts a file beneath the process's workPath.
func (r *Runtime) Upload(ctx context.Context, taskID string, f api.UploadFile) error {
	return r.patiently(ctx, func() error {
		return r.c.Upload(ctx, taskID, protocol.File{Path: f.Path, Content: f.Content, Mode: f.Mode, User: f.User})
	})
}

// Reload runs the reload command and returns its failure. A daemon that is
// restarted meanwhile goes on with it.
func (r *Runtime) Reload(ctx context.Context, taskID string) error {
	before, err := r.c.Status(ctx, taskID)
	if err != nil {
		return err
	}
	var st protocol.Status
	err = r.patiently(ctx, func() (err error) {
		st, err = r.c.Reload(ctx, taskID)
		return err
	})
	if err != nil {
		return err
	}
	past := 0
	if b := before.Reload; b != nil && !b.Running {
		past = b.Number
	}
	st, err = r.follow(ctx, st, func(s *protocol.Status) bool {
		return isEnded(s) || s.Reload != nil && s.Reload.Number > past && !s.Reload.Running
	})
	switch {
	case err != nil:
		return err
	case st.Reload == nil || st.Reload.Number <= past || st.Reload.Running:
		return fmt.Errorf("task %q has ended before its reload was done", taskID)
	case st.Reload.Failure != "":
		return errors.New(st.Reload.Failure)
	}
	return nil
}

// Restart has the daemon end what runs and start it anew. An answer that is lost
// does not make two restarts of one.
func (r *Runtime) Restart(ctx context.Context, taskID string, grace time.Duration) (executor.Started, error) {
	st, err := r.c.Status(ctx, taskID)
	if err != nil {
		return executor.Started{}, err
	}
	before := st.Restarts
	// The daemon may start it anew at any moment from now on.
	r.setDoubt(taskID, true)
	under := func(s *protocol.Status) bool { return s.Restarts > before || s.State != protocol.StateRunning }
	err = r.patiently(ctx, func() (err error) {
		if st, err = r.c.Status(ctx, taskID); err == nil && !under(&st) {
			st, err = r.c.Restart(ctx, taskID, grace)
		}
		return err
	})
	if err != nil {
		return executor.Started{}, err
	}
	st, err = r.follow(ctx, st, func(s *protocol.Status) bool {
		return isEnded(s) || s.Restarts > before && s.State == protocol.StateRunning
	})
	switch {
	case client.IsCode(err, protocol.CodeNotFound):
		err = fmt.Errorf("task %q has ended instead of a restart", taskID)
	case err != nil:
	case st.Failure != "":
		err = errors.New(st.Failure)
	case isEnded(&st):
		err = fmt.Errorf("task %q has ended instead of a restart", taskID)
	}
	if err == nil {
		r.know(ctx, taskID, st.Pid)
	}
	return executor.Started{Pid: st.Pid, At: st.StartedAt}, err
}

// limitsOf is what the daemon sets of a task's amounts. A limit of processes that is 0
// stays as it is.
func limitsOf(requests, limits api.TaskResources) protocol.Limits {
	return protocol.Limits{CPUs: limits.CPUs, MemMB: limits.MemMB, Pids: limits.Pids, CPURequest: requests.CPUs}
}
