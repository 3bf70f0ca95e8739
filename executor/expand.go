package executor

import (
	"context"
	"fmt"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// dirsRuntime is a Runtime whose tasks may name its directories: the process
// daemon's, which are known on the agent only.
type dirsRuntime interface {
	Dirs(ctx context.Context) (api.Dirs, error)
}

// expand returns a copy of spec with its variables replaced. A variable that
// does not exist is the specification's fault.
func expand(ctx context.Context, rt Runtime, spec *api.TaskSpec) (*api.TaskSpec, error) {
	var dirs api.Dirs
	if d, ok := rt.(dirsRuntime); ok {
		var err error
		if dirs, err = d.Dirs(ctx); err != nil {
			return nil, fmt.Errorf("ask for the directories of the %s runtime: %w", spec.Kind, err)
		}
	}
	expanded, err := api.ExpandSpec(spec, dirs)
	if err != nil {
		return nil, &invalid{err: err, reason: mesos.REASON_TASK_INVALID}
	}
	return expanded, nil
}
