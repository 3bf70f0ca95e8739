package executor

import (
	"fmt"
	"io"
	"sync"

	"tandem/api"
)

// runtimes makes each runtime once, when it is first needed. Unlike the rest of
// the executor's state it is shared by the preparing steps, hence the lock.
type runtimes struct {
	make map[api.TaskKind]func() (Runtime, error)

	mu   sync.Mutex
	made map[api.TaskKind]Runtime
}

func (r *runtimes) get(kind api.TaskKind) (Runtime, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rt := r.made[kind]; rt != nil {
		return rt, nil
	}
	newRuntime := r.make[kind]
	if newRuntime == nil {
		return nil, &invalid{err: fmt.Errorf("kind %q: this executor has no runtime for it; use %q or %q", kind, api.TaskContainer, api.TaskProcess)}
	}
	rt, err := newRuntime()
	if err != nil {
		return nil, fmt.Errorf("start the runtime for a %s: %w", kind, err)
	}
	r.made[kind] = rt
	return rt, nil
}

func (r *runtimes) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rt := range r.made {
		if c, ok := rt.(io.Closer); ok {
			c.Close()
		}
	}
}
