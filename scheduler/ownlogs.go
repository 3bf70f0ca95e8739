package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tandem/api"
	"tandem/internal/execstream"
	"tandem/scheduler/wire"
)

// A process may write files of its own beside its output (logPath). They are not in
// the task's sandbox, so the agent's files API does not reach them, and no longer than
// the process runs is somebody there to read them with the right care: its
// executor, through the process daemon. What is left after that is in keptlogs.go.

// streamLog is the stream that those files are; streamLog/NAME is one of them.
const streamLog = "log"

// ownLog splits a stream: file is empty for the one written to last.
func ownLog(stream string) (file string, ok bool) {
	if stream == streamLog {
		return "", true
	}
	return strings.CutPrefix(stream, streamLog+"/")
}

// getLogFiles lists the files that the logPath of a process names.
func (s *Scheduler) getLogFiles(r *http.Request) (any, error) {
	g, task, kept, err := s.loggedTask(r)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		return kept.list(r.Context())
	}
	result, _, err := s.say(r.Context(), "", g, &api.Message{Type: api.MessageLogs, Task: task, Logs: &api.LogRequest{List: true}})
	if err != nil {
		return nil, err
	}
	return append([]api.LogFile{}, result.LogFiles...), nil
}

// getOwnLog copies one of the files. The executor has looked for it before it opens
// the session, so what is wrong with it is told as an error.
func (s *Scheduler) getOwnLog(w http.ResponseWriter, r *http.Request, req *api.LogRequest) error {
	g, task, kept, err := s.loggedTask(r)
	if err != nil {
		return err
	}
	if kept != nil {
		src, err := kept.open(r.Context(), req.File)
		if err != nil {
			return err
		}
		return s.showLog(w, r, src, req.Tail, req.Follow)
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	conn, err := s.connectSession(ctx, "", g, &api.Message{Type: api.MessageLogs, Task: task, Logs: req})
	if err != nil {
		return err
	}
	out := &flushing{w: w, c: http.NewResponseController(w)}
	out.begin()
	if _, err := execstream.Attach(r.Context(), conn, execstream.Terminal{Stdout: out, Stderr: out}); err != nil && r.Context().Err() == nil {
		fmt.Fprintf(w, "\n[the log cannot be read any further: %v]\n", err)
	}
	return nil
}

// flushing writes a text that may come slowly.
type flushing struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f *flushing) begin() {
	f.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	f.w.Header().Set("X-Content-Type-Options", "nosniff")
	f.w.WriteHeader(http.StatusOK)
	_ = f.c.Flush() // a writer that cannot flush buffers; the text still arrives
}

func (f *flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.c.Flush())
}

// loggedTask returns the ids of the process that a request names, and what is kept of its
// files when it has ended.
func (s *Scheduler) loggedTask(r *http.Request) (group, task string, kept *keptLogs, err error) {
	err = s.loop.call(r.Context(), func() error {
		g, t, err := s.loop.findTask(r.PathValue("id"), r.PathValue("task"))
		switch {
		case err != nil:
			return err
		case t.Kind != api.TaskProcess:
			return conflict("task %q is a %s, which has no logPath: what it wrote is in its streams stdout and stderr", t.Name, t.Kind)
		case terminal(t.State):
			kept = &keptLogs{src: logSource{http: s.http, agent: s.agentURL(g.AgentURL), taskID: t.ID}, name: t.Name, host: g.Hostname}
			if t.Report != nil && t.Report.Sandbox != "" {
				kept.dir = t.Report.Sandbox + "/" + keptLogsDir
			}
		}
		group, task = g.ID, t.ID
		return nil
	})
	return group, task, kept, err
}

// findTask returns a task by the id of its taskgroup, and its own id, its name, or
// - when there is only one. A taskgroup - is the one that has a task of this id, which
// may have ended.
func (l *loop) findTask(id, task string) (*groupRecord, *taskRecord, error) {
	g := l.findGroup(id)
	if id == "-" {
		if g = l.groupOfTask(task); g == nil {
			return nil, nil, &apiError{http.StatusNotFound, wire.Problem{Code: wire.CodeNotFound, Message: fmt.Sprintf("task %q is not known (any more)", task)}}
		}
	}
	if g == nil {
		return nil, nil, noGroup(id)
	}
	var names []string
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if t.Name == task || t.ID == task || task == "-" && len(g.Tasks) == 1 {
			return g, t, nil
		}
		names = append(names, t.Name)
	}
	return nil, nil, &apiError{http.StatusNotFound, wire.Problem{Code: wire.CodeNotFound, Message: fmt.Sprintf("taskgroup %s has no task %q; it has %s", id, task, strings.Join(names, ", "))}}
}

// groupOfTask returns the taskgroup, present or before, that has a task of an id.
func (l *loop) groupOfTask(id string) *groupRecord {
	has := func(g *groupRecord) bool {
		return g != nil && slices.ContainsFunc(g.Tasks, func(t taskRecord) bool { return t.ID == id })
	}
	for _, slots := range l.slots {
		for _, sl := range slots {
			switch {
			case has(sl.Group):
				return sl.Group
			case has(sl.last):
				return sl.last
			}
		}
	}
	return nil
}
