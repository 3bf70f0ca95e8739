package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"tandem/api"
	"tandem/internal/execstream"
)

// logging is a runtime of processes that write files.
type logging struct {
	*scripted
	parrot
	files []api.LogFile
}

func (l *logging) LogFiles(context.Context, string) ([]api.LogFile, error) { return l.files, nil }

func (l *logging) Logs(_ context.Context, id string, req api.LogRequest, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s %+v", id, req)
	return err
}

func TestLogsOfAProcess(t *testing.T) {
	t.Parallel()
	e, _ := sessions(t)
	l := &logging{scripted: newScripted(), files: []api.LogFile{{Name: "b.log"}, {Name: "a.log"}}}
	tk := &task{id: "id", runtime: l, spec: &api.TaskSpec{Name: "db", Kind: api.TaskProcess}}
	tk.run = &Task{Spec: &api.TaskSpec{Process: &api.ProcessTask{LogPath: "/w/*.log"}}}
	read := func(req api.LogRequest) (string, *api.MessageResult, error) {
		do, err := e.planLogs(tk, req)
		result := &api.MessageResult{}
		if err == nil {
			err = do(t.Context(), result)
		}
		if err != nil || result.Exec == nil {
			return "", result, err
		}
		var out strings.Builder
		conn := visit(t, result.Exec.Port, result.Exec.Token)
		_, err = execstream.Attach(t.Context(), conn, execstream.Terminal{Stdout: &out})
		return out.String(), result, err
	}
	if text, _, err := read(api.LogRequest{File: "a.log", Tail: 3, Follow: true}); err != nil || text != "id {List:false File:a.log Tail:3 Follow:true}" {
		t.Error(text, err)
	}
	if text, _, err := read(api.LogRequest{Tail: -1}); err != nil || text != "id {List:false File:b.log Tail:-1 Follow:false}" {
		t.Errorf("the one written to last: %s %v", text, err)
	}
	if _, result, err := read(api.LogRequest{List: true}); err != nil || len(result.LogFiles) != 2 || result.Exec != nil {
		t.Errorf("%+v %v", result, err)
	}
	refuse := func(want string, req api.LogRequest) {
		t.Helper()
		if _, result, err := read(req); err == nil || !strings.Contains(err.Error(), want) || result.Exec != nil {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refuse("names no file c.log; there are log/a.log, log/b.log", api.LogRequest{File: "c.log"})
	l.files = nil
	refuse("logPath /w/*.log names no file yet", api.LogRequest{})
	l.files = make([]api.LogFile, api.MaxLogFiles+1)
	if _, result, err := read(api.LogRequest{List: true}); err != nil || len(result.LogFiles) != api.MaxLogFiles {
		t.Errorf("%d files, %v", len(result.LogFiles), err)
	}
	refuse("481 more", api.LogRequest{File: "c.log"})
	// The operator's word on sessions holds.
	l.files, l.forbidden = []api.LogFile{{Name: "a.log"}}, errors.New("the policy forbids it")
	refuse("the policy forbids it", api.LogRequest{})
	tk.run.Spec.Process.LogPath = ""
	refuse(`process "db" has no logPath`, api.LogRequest{})
	if _, result, err := read(api.LogRequest{List: true}); err != nil || result.LogFiles != nil {
		t.Errorf("a list without a logPath: %+v %v", result, err)
	}
	tk.spec.Kind, tk.run = api.TaskContainer, &Task{Spec: &api.TaskSpec{}}
	refuse(`task "db" is a container, which has no logPath`, api.LogRequest{List: true})
}
