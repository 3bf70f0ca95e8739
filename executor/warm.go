package executor

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// warmLimit bounds what is done ahead of the first task.
const warmLimit = 5 * time.Second

// warm uses the time until the agent has accepted the executor and launches the first
// task: what a program does for the first time takes several times as long as after that,
// and a connection takes longer than a call. It runs beside the loop and the
// subscription, which never wait for it.
func (e *Executor) warm() {
	if len(e.opts.Warm) == 0 {
		return
	}
	e.workers.Go(func() {
		ctx, cancel := context.WithTimeout(e.work, warmLimit)
		defer cancel()
		for _, kind := range e.opts.Warm {
			// A runtime that cannot be made is told by the first task that needs it.
			if rt, err := e.runtimeFor(kind); err == nil {
				if w, ok := rt.(Warmable); ok {
					w.Warm(ctx)
				}
			}
		}
	})
	e.workers.Go(func() {
		rehearse(e.cfg.ExecutorID)
		_ = os.Mkdir(filepath.Join(e.cfg.Sandbox, sandboxTasks), 0o755) // the task's own is made beneath, and tells
	})
}

// rehearse takes a specification through what the loop does with it at a launch, without
// any effect: package json looks at each type once, and the kernel brings each page of the
// program in when it is first used.
func rehearse(executorID string) {
	data, err := json.Marshal(&api.TaskSpec{
		Version: api.TaskSpecVersion, Name: "none", Kind: api.TaskProcess, NodeIP: "127.0.0.1", Network: api.TaskNetwork{Mode: "HOST"},
		Process: &api.ProcessTask{WorkPath: "${work_base_dir}", StartCmd: "none"},
	})
	if err != nil {
		return
	}
	spec, _, err := decodeSpec(&mesos.TaskInfo{Data: data}, executorID)
	if err != nil || checkSpec(spec) != nil {
		return
	}
	_, _ = api.ExpandSpec(spec, api.Dirs{WorkBase: "/", RunBase: "/"})
	_, _ = json.Marshal(api.TaskReport{})
	newUUID()
}
