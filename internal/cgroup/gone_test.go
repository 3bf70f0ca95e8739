package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestGroupThatIsBeingRemoved: for a moment a group has its name and no life any more, and the
// kernel answers ENODEV. To whoever reads it, it is empty; whoever makes it gets it.
func TestGroupThatIsBeingRemoved(t *testing.T) {
	tree := Open(filepath.Join(fmt.Sprintf("tandem-test-gone-%d", os.Getpid()), "p-own"))
	if tree.Mode() == ModeSession {
		t.Skip("no control groups: ", tree)
	}
	t.Cleanup(tree.Close)
	g := tree.Group("task")
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Mkdir(g.dir(tree.track), 0o755)
				_ = os.Remove(g.dir(tree.track))
				_ = os.Remove(filepath.Dir(g.dir(tree.track)))
			}
		}
	})
	for end := time.Now().Add(time.Second); time.Now().Before(end) && !t.Failed(); {
		if pids, err := g.Pids(); err != nil || len(pids) > 0 {
			t.Errorf("pids: %v, %v", pids, err)
		}
		if empty, err := g.Empty(); err != nil || !empty {
			t.Errorf("empty: %v, %v", empty, err)
		}
		if _, err := tree.Groups(); err != nil {
			t.Errorf("groups: %v", err)
		}
		if err := g.Kill(); err != nil {
			t.Errorf("kill: %v", err)
		}
		if err := g.make(tree.track); err != nil {
			t.Errorf("make: %v", err)
		}
		if again := Open(tree.base); again.Mode() != tree.Mode() {
			t.Errorf("opened again: %s", again)
		}
	}
	close(stop)
	busy.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}
