package executor

import (
	"context"

	"tandem/api"
)

func (e *Executor) expand(_ context.Context, _ Runtime, spec *api.TaskSpec) (*api.TaskSpec, error) {
	return spec, nil
}
