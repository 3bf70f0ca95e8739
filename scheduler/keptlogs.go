package scheduler

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"tandem/api"
	"tandem/scheduler/wire"
)

// What a process wrote to the files of its logPath is read through the process. Of one that
// has ended its process daemon has put the ends of those files into its sandbox, where the
// agent's files API reaches them, as it does stdout and stderr, for as long as those.

// keptLogsDir is the directory of the sandbox in which they are; the process daemon has the
// same name for it.
const keptLogsDir = ".tandem-log"

// fileEntry is a file of a directory, as an agent lists it.
type fileEntry struct {
	Path string `json:"path"`
	// Size is in bytes, Modified in seconds since 1970.
	Size     int64   `json:"size"`
	Modified float64 `json:"mtime"`
	// Mode is as ls shows it.
	Mode string `json:"mode"`
}

// browse lists a directory of an agent; nothing when there is none.
func (s *logSource) browse(ctx context.Context, dir string) (entries []fileEntry, err error) {
	if err := s.askAgent(ctx, "/files/browse", url.Values{"path": {dir}}, &entries); err != nil && !isNotFound(err) {
		return nil, err
	}
	return entries, nil
}

// keptLogs are the files of a process that has ended, in a directory of its sandbox.
type keptLogs struct {
	src  logSource
	dir  string
	name string // the task's
	host string
}

// list returns them, the one written to last first.
func (k *keptLogs) list(ctx context.Context) ([]api.LogFile, error) {
	files := []api.LogFile{}
	if k.dir == "" {
		return files, nil // it has no sandbox, for it was never started
	}
	entries, err := k.src.browse(ctx, k.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Mode, "-") {
			files = append(files, api.LogFile{Name: path.Base(e.Path), Size: e.Size, Modified: time.Unix(int64(e.Modified), 0).UTC()})
		}
	}
	slices.SortStableFunc(files, func(a, b api.LogFile) int { return b.Modified.Compare(a.Modified) })
	return files, err
}

// open finds one of them; an empty name is the one written to last.
func (k *keptLogs) open(ctx context.Context, file string) (*logSource, error) {
	files, err := k.list(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = streamLog + "/" + f.Name
	}
	switch {
	case len(files) == 0:
		return nil, conflict("process %q has ended, and of files that its logPath names nothing is kept: it wrote none, its sandbox is gone, or its end could not be copied there; what it wrote may still be on agent %s, and its streams stdout and stderr can be read", k.name, k.host)
	case file == "":
		file = files[0].Name
	case !slices.Contains(names, streamLog+"/"+file):
		return nil, &apiError{http.StatusNotFound, wire.Problem{Code: wire.CodeNotFound, Message: fmt.Sprintf("process %q has ended, and no file %s of its logPath is kept; there are %s", k.name, file, strings.Join(names, ", "))}}
	}
	src := k.src
	src.path = path.Join(k.dir, file)
	return &src, nil
}
