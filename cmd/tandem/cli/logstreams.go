package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/internal/term"
	"tandem/scheduler/wire"
)

// The streams that every task has, and what the others begin with.
const (
	streamOut = "stdout"
	streamErr = "stderr"
	streamLog = "log"
)

// checkStream says what is wrong with the name of a stream.
func checkStream(name string) error {
	file, own := strings.CutPrefix(name, streamLog+"/")
	if slices.Contains([]string{streamOut, streamErr, streamLog}, name) || own && file != "" && !strings.Contains(file, "/") {
		return nil
	}
	return exit.Errorf(exit.Usage, "stream %q is none: use stdout, stderr, log (the file of logPath written to last) or log/NAME; --list shows what there is", name)
}

// streamEntry is a line of "logs --list".
type streamEntry struct {
	Namespace string `json:"namespace"`
	Taskgroup string `json:"taskgroup"`
	Task      string `json:"task"`
	Stream    string `json:"stream"`
	// Size and Modified are known of files of logPath only.
	Size     *int64     `json:"size,omitempty"`
	Modified *time.Time `json:"modified,omitempty"`
}

// streamsOf are the streams of a task. With an error they are those that are known nevertheless.
func streamsOf(ctx context.Context, b backend, src logSource) ([]streamEntry, error) {
	entry := func(stream string) streamEntry {
		return streamEntry{Namespace: src.group.Namespace, Taskgroup: src.group.Name, Task: src.task.Name, Stream: stream}
	}
	out := []streamEntry{entry(streamOut), entry(streamErr)}
	group, task := src.names()
	// What a process that has ended wrote is kept.
	over := slices.Contains([]string{"FINISHED", "FAILED", "KILLED"}, src.task.State)
	if src.task.Kind != api.TaskProcess || !over && (src.group.ID == "" || src.group.State != wire.Running) {
		return out, nil
	}
	files, err := b.LogFiles(ctx, group, task)
	for _, f := range files {
		e := entry(streamLog + "/" + f.Name)
		e.Size, e.Modified = &f.Size, &f.Modified
		out = append(out, e)
	}
	return out, err
}

// listStreams shows what can be read of tasks. What one of them does not tell keeps
// nobody from the rest.
func (a *app) listStreams(ctx context.Context, b backend, sources []logSource, format string) error {
	entries := []streamEntry{}
	var errs []error
	for _, src := range sources {
		list, err := streamsOf(ctx, b, src)
		entries = append(entries, list...)
		if err != nil {
			errs = append(errs, fmt.Errorf("files of %s, task %s: %w", src.group.Name, src.task.Name, err))
		}
	}
	if format != formatTable {
		return errors.Join(append(errs, a.printData(format, map[string]any{"items": entries}))...)
	}
	t := &term.Table{Columns: []term.Column{{Title: "TASKGROUP"}, {Title: "TASK"}, {Title: "STREAM"}, {Title: "BYTES", Right: true}, {Title: "MODIFIED"}}}
	for _, e := range entries {
		var size, modified string
		if e.Size != nil && e.Modified != nil {
			size, modified = strconv.FormatInt(*e.Size, 10), e.Modified.Local().Format(time.DateTime)
		}
		t.Row(term.Text(e.Taskgroup), term.Text(e.Task), term.Text(e.Stream), term.Text(size), term.Text(modified))
	}
	return errors.Join(append(errs, t.Write(a.out))...)
}

// completeStreams are the streams of the tasks that the arguments so far mean. A
// process is asked for its files, when it answers at once.
func (a *app) completeStreams(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	out := []string{streamOut, streamErr}
	s := scopeOf(cmd)
	b, err := s.backend(a)
	if err != nil || len(args) == 0 {
		return append(out, streamLog), cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(contextOf(cmd), completionDeadline)
	defer cancel()
	task := ""
	if f := cmd.Flags().Lookup("task"); f != nil {
		task = f.Value.String()
	}
	sources, err := logSources(ctx, b, args[0], s.namespace, task)
	if err != nil {
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	for _, src := range sources {
		if src.task.Kind == api.TaskProcess {
			out = append(out, streamLog)
		}
		entries, _ := streamsOf(ctx, b, src) // those that are known
		for _, e := range entries {
			out = append(out, e.Stream)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}
