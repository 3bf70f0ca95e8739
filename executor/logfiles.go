package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tandem/api"
	"tandem/internal/execstream"
)

// LogReader is a Runtime whose tasks may write files of their own beside their output.
type LogReader interface {
	// LogFiles returns those that a running task's logPath names, the one written to last first.
	LogFiles(ctx context.Context, taskID string) ([]api.LogFile, error)
	// Logs copies what req asks for of one of them, until there is no more, or with
	// Follow until the task or the context ends.
	Logs(ctx context.Context, taskID string, req api.LogRequest, w io.Writer) error
}

// planLogs lists the files of a process's logPath, or opens a session that brings
// one of them. The text takes a session's way, because it may have no end and must
// not pass the master; so it needs what a session needs.
func (e *Executor) planLogs(t *task, req api.LogRequest) (func(context.Context, *api.MessageResult) error, error) {
	r, ok := t.runtime.(LogReader)
	if !ok || t.run == nil || t.run.Spec.Process == nil {
		return nil, fmt.Errorf("task %q is a %s, which has no logPath: what it wrote is in its streams stdout and stderr", t.name(), t.spec.Kind)
	}
	if t.run.Spec.Process.LogPath == "" {
		if req.List {
			return func(context.Context, *api.MessageResult) error { return nil }, nil
		}
		return nil, fmt.Errorf("process %q has no logPath, which names the files that it writes itself; its streams are stdout and stderr", t.name())
	}
	x, ok := t.runtime.(Interactive)
	if !ok {
		return nil, fmt.Errorf("task %q is a %s, which has no sessions", t.name(), t.spec.Kind)
	}
	id, logPath := t.id, t.run.Spec.Process.LogPath
	return func(ctx context.Context, result *api.MessageResult) error {
		files, err := r.LogFiles(ctx, id)
		if err != nil {
			return err
		}
		if req.List {
			result.LogFiles = files[:min(len(files), api.MaxLogFiles)]
			return nil
		}
		if req.File, err = chosenLog(files, req.File, logPath); err != nil {
			return err
		}
		s := session{task: id, what: "log " + req.File, run: func(ctx context.Context, t execstream.Terminal) (int, error) {
			return 0, r.Logs(ctx, id, req, t.Stdout)
		}}
		return e.openSession(ctx, x, s, result)
	}, nil
}

// chosenLog is the file that is meant: the one of that name, or that written to last.
func chosenLog(files []api.LogFile, name, logPath string) (string, error) {
	if len(files) == 0 {
		return "", fmt.Errorf("logPath %s names no file yet", logPath)
	}
	if name == "" {
		return files[0].Name, nil
	}
	var names []string
	for _, f := range files {
		if f.Name == name {
			return name, nil
		}
		names = append(names, "log/"+f.Name)
	}
	const most = 20
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return "", errors.New("logPath " + logPath + " names no file " + name + "; there are " + strings.Join(names, ", "))
}
