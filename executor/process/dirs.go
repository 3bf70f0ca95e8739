package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/cgroup"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

var _ executor.Warmable = (*Runtime)(nil)

// warmed is what Warm has learned.
type warmed struct {
	mu   sync.Mutex
	done chan struct{} // nil unless Warm was called; closed when it has asked
	dirs api.Dirs
	// lost is the client's count from before the call that told dirs; they are good as long
	// as it has not changed. known is false when there are none.
	lost  uint64
	known bool
}

// Warm connects to the daemon, asks it for its directories, and does once what the
// first task of a program would wait for. A daemon that is not there is no error here:
// who needs it waits for it.
func (r *Runtime) Warm(ctx context.Context) {
	w := &r.warm
	w.mu.Lock()
	if w.done != nil {
		w.mu.Unlock()
		return
	}
	w.done = make(chan struct{})
	w.mu.Unlock()

	lost := r.c.Lost()
	dirs, err := r.askDirs(ctx)
	w.mu.Lock()
	w.dirs, w.lost, w.known = dirs, lost, err == nil
	w.mu.Unlock()
	close(w.done)

	// Whether this works is told when it is needed.
	_ = r.opt.Journal.GetReady()
	_ = cgroup.Holding(os.Getpid(), protocol.GroupName(r.opt.Journal.Name()))
	_, _ = json.Marshal(protocol.Spec{})
	_ = json.Unmarshal([]byte("{}"), new(protocol.Status))
}

// Dirs returns what ${work_base_dir} and ${run_base_dir} stand for on this agent. What
// Warm was told counts as long as the daemon that told it is there: another one may have
// other directories.
func (r *Runtime) Dirs(ctx context.Context) (dirs api.Dirs, err error) {
	if dirs, ok := r.warm.get(ctx, r.c); ok {
		return dirs, nil
	}
	err = r.patiently(ctx, func() (err error) {
		dirs, err = r.askDirs(ctx)
		return err
	})
	return dirs, err
}

// get waits for Warm if that is at work.
func (w *warmed) get(ctx context.Context, c *client.Client) (api.Dirs, bool) {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	if done == nil {
		return api.Dirs{}, false
	}
	select {
	case <-done:
	case <-ctx.Done():
		return api.Dirs{}, false
	}
	return w.dirs, w.known && c.Lost() == w.lost
}

func (r *Runtime) askDirs(ctx context.Context) (api.Dirs, error) {
	info, err := r.c.Info(ctx)
	if err == nil && (!filepath.IsAbs(info.WorkBaseDir) || !filepath.IsAbs(info.RunBaseDir)) {
		err = fmt.Errorf("%w: what answers names no directories", client.ErrUnavailable)
	}
	return api.Dirs{WorkBase: info.WorkBaseDir, RunBase: info.RunBaseDir}, err
}
