package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tandem/api"
	"tandem/scheduler/wire"
)

// How a log is read: in pieces of what the agent gives at once, and how often a
// reader that follows looks again.
const (
	logChunk  = 64 << 10
	logPause  = 300 * time.Millisecond
	logAnswer = 10 * time.Second
)

// getLogs copies a task's output from the files API of its agent:
// stream=stdout|stderr, tail=LINES (from the end; all without it), follow=1. With
// stream=log or log/NAME it is a file that the process writes itself.
func (s *Scheduler) getLogs(w http.ResponseWriter, r *http.Request) {
	follow := r.URL.Query().Get("follow") != "" && r.URL.Query().Get("follow") != "0"
	tail, err := intParam(r, "tail", -1)
	if file, ok := ownLog(r.URL.Query().Get("stream")); ok && err == nil {
		req := &api.LogRequest{File: file, Tail: int(min(max(tail, -1), math.MaxInt32)), Follow: follow}
		if err := s.getOwnLog(w, r, req); err != nil {
			writeError(w, err)
		}
		return
	}
	if err != nil {
		writeError(w, err)
		return
	}
	src, err := s.logSource(r)
	if err != nil {
		writeError(w, err)
		return
	}
	if err := s.showLog(w, r, src, int(tail), follow); err != nil {
		writeError(w, err)
	}
}

// showLog copies an output from an agent. An error comes before anything is written.
func (s *Scheduler) showLog(w http.ResponseWriter, r *http.Request, src *logSource, tail int, follow bool) (err error) {
	offset := int64(0)
	if tail >= 0 {
		offset, err = src.tailOffset(r.Context(), tail)
	}
	var first []byte
	if err == nil {
		first, offset, err = src.readAt(r.Context(), offset, logChunk)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	s.copyLog(r.Context(), w, src, offset, first, follow)
	return nil
}

func (s *Scheduler) copyLog(ctx context.Context, w http.ResponseWriter, src *logSource, offset int64, piece []byte, follow bool) {
	flush := http.NewResponseController(w)
	ended := false
	for {
		if _, err := w.Write(piece); err != nil {
			return
		}
		offset += int64(len(piece))
		if len(piece) == 0 {
			_ = flush.Flush() // a writer that cannot flush buffers; the text still arrives
			if !follow || ended {
				return
			}
			// Once the task has ended, what it wrote is complete after one more look.
			ended = !s.taskLives(ctx, src.taskID)
			select {
			case <-ctx.Done():
				return
			case <-time.After(logPause):
			}
		}
		var err error
		expected := offset
		if piece, offset, err = src.readAt(ctx, offset, logChunk); err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(w, "\n[the log cannot be read any further: %v]\n", err)
			}
			return
		}
		if offset > expected && len(piece) > 0 && follow {
			fmt.Fprintf(w, "\n[%d bytes were rotated away before they could be shown]\n", offset-expected)
		}
	}
}

func (s *Scheduler) taskLives(ctx context.Context, taskID string) bool {
	lives := false
	err := s.loop.call(ctx, func() error {
		if sl := s.loop.tasks[taskID]; sl != nil {
			for i := range sl.Group.Tasks {
				if t := &sl.Group.Tasks[i]; t.ID == taskID {
					lives = !terminal(t.State)
				}
			}
		}
		return nil
	})
	return err == nil && lives
}

// logSource is an output on an agent.
type logSource struct {
	agent, path, taskID string
	// http is nil for the client of a cluster without TLS.
	http *http.Client
	// files are those of the output, as they were found last; nil means to look.
	files []logFile
}

// logSource finds the file of a task, named by its id, its name, or by - when there is only one.
func (s *Scheduler) logSource(r *http.Request) (*logSource, error) {
	stream := r.URL.Query().Get("stream")
	if stream == "" {
		stream = "stdout"
	}
	if stream != "stdout" && stream != "stderr" {
		return nil, badRequest("stream %q is neither stdout nor stderr, nor log or log/NAME, a file of a process's logPath", stream)
	}
	var src *logSource
	err := s.loop.call(r.Context(), func() error {
		g, t, err := s.loop.findTask(r.PathValue("id"), r.PathValue("task"))
		if err != nil {
			return err
		}
		if t.Report == nil || t.Report.Sandbox == "" {
			return conflict("task %q has not been started yet, so it has no log (state %s)", t.Name, stateName(t.State))
		}
		src = &logSource{http: s.http, agent: s.agentURL(g.AgentURL), path: t.Report.Sandbox + "/" + stream, taskID: t.ID}
		return nil
	})
	return src, err
}

// findGroup returns a taskgroup by its id: the present one of an instance, or the one before.
func (l *loop) findGroup(id string) *groupRecord {
	for _, slots := range l.slots {
		for _, sl := range slots {
			if sl.Group != nil && sl.Group.ID == id {
				return sl.Group
			}
			if sl.last != nil && sl.last.ID == id {
				return sl.last
			}
		}
	}
	return nil
}

func unreachableAgent(agent string, err error) error {
	return &apiError{http.StatusBadGateway, wire.Problem{Code: wire.CodeUnavailable, Message: fmt.Sprintf("agent %s: %v", agent, err)}}
}

func isNotFound(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == http.StatusNotFound
}

func (s *logSource) ask(ctx context.Context, file string, query url.Values) (*filesRead, error) {
	var answer filesRead
	query.Set("path", file)
	if err := s.askAgent(ctx, "/files/read", query, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}

// askAgent asks for a file, or for the list of a directory, which the query names as path.
func (s *logSource) askAgent(ctx context.Context, call string, query url.Values, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, logAnswer)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.agent+call+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return fmt.Errorf("agent address %q: %w", s.agent, err)
	}
	resp, err := clientOr(s.http).Do(req)
	if err != nil {
		return unreachableAgent(s.agent, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16*logChunk))
	if err != nil {
		return fmt.Errorf("agent %s: %w", s.agent, err)
	}
	if resp.StatusCode == http.StatusNotFound {
		return &apiError{404, wire.Problem{Code: wire.CodeNotFound, Message: fmt.Sprintf("agent %s has no file %s; its sandbox may have been removed", s.agent, query.Get("path"))}}
	}
	if resp.StatusCode != http.StatusOK {
		return &refusedError{s.agent, resp.Status, strings.TrimSpace(clip(string(body), 300))}
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("agent %s: %s: %w", s.agent, call, err)
	}
	return nil
}

// refusedError is an answer of an agent with another status than was wanted.
type refusedError struct{ agent, status, text string }

func (e *refusedError) Error() string {
	return fmt.Sprintf("agent %s: %s: %s", e.agent, e.status, e.text)
}

// readFull reads again what an agent has left out: it may end a piece before a
// character that is not whole. Less than asked for comes back when the file has become shorter.
func (s *logSource) readFull(ctx context.Context, offset int64, length int) ([]byte, error) {
	var out []byte
	for len(out) < length {
		want := offset + int64(len(out))
		piece, at, err := s.readAt(ctx, want, length-len(out))
		if err != nil {
			return nil, err
		}
		if len(piece) == 0 || at != want {
			break
		}
		// At the end of a file the next one begins.
		piece = piece[:min(len(piece), length-len(out))]
		out = append(out, piece...)
	}
	return out, nil
}

// tailOffset is where the last lines begin; it looks at most a few megabytes back.
func (s *logSource) tailOffset(ctx context.Context, lines int) (int64, error) {
	size, err := s.end(ctx)
	if err != nil {
		return 0, err
	}
	text := ""
	at, first := size, s.files[0].begin
	for at > first && size-at < 4<<20 {
		n := min(at-first, logChunk)
		at -= n
		piece, err := s.readFull(ctx, at, int(n))
		if err != nil {
			return 0, err
		}
		text = string(piece) + text
		if strings.Count(strings.TrimSuffix(text, "\n"), "\n") >= lines {
			break
		}
	}
	body := strings.TrimSuffix(text, "\n")
	if lines == 0 {
		return size, nil
	}
	cut := len(body)
	for range lines {
		i := strings.LastIndexByte(body[:cut], '\n')
		if i < 0 {
			return at, nil
		}
		cut = i
	}
	return at + int64(cut) + 1, nil
}
