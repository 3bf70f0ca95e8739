package agent

import (
	"path/filepath"
	"testing"
)

// TestQuickExecutorIsAsked: an executor may subscribe before its pid is on disk.
// If its framework ends in between, it is asked to end, not killed.
func TestQuickExecutorIsAsked(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(false, "x1", "ok", "t1"))
	sandbox := sandboxOf(t, a, "x1")
	a.loop.do(a.ctx, func() {
		// As if the launch were still writing.
		e := a.frameworks["f1"].executors["x1"]
		e.cancel = func() {}
		a.shutdownFramework("f1")
		e.cancel = nil
	})
	fileWith(t, filepath.Join(sandbox, "notes"), "SHUTDOWN")
}
