package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"

	"tandem/api"
)

// reapLimit is how long after its executor's death something of a taskgroup may be
// left. It is held to where the faults are run alone; beside other tests there is patience.
const reapLimit = 5 * time.Second

// A watch measures how long after the death of its executor nothing of a taskgroup is
// left. It looks from the moment of the death on, and does not wait for the news of it.
type watch struct {
	c     *cluster
	g     string
	specs []*api.TaskSpec
	once  sync.Once
	death chan time.Time
	over  chan struct{}

	// after over is closed
	took time.Duration
	err  error
}

// watchFor watches a taskgroup. asked is asked when its executor died; zero means not
// yet. w.died tells it, too; w.end is to be called when the life of the taskgroup is over.
func (c *cluster) watchFor(g string, specs []*api.TaskSpec, asked func() time.Time) *watch {
	w := &watch{c: c, g: g, specs: specs, death: make(chan time.Time, 1), over: make(chan struct{})}
	go func() {
		defer close(w.over)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case at := <-w.death:
				if at.IsZero() {
					at = asked() // it died at the very end
				}
				w.took, w.err = c.gone(g, specs, at)
				return
			case <-tick.C:
				if at := asked(); !at.IsZero() {
					w.died(at)
				}
			}
		}
	}()
	return w
}

// died tells the moment of the executor's death; the first word counts.
func (w *watch) died(at time.Time) { w.once.Do(func() { w.death <- at }) }

// end waits until nothing is left, and looks once more: nothing may come late.
func (w *watch) end() (time.Duration, error) {
	w.died(time.Time{})
	<-w.over
	if w.err == nil {
		if left := w.c.leftOf(w.g, w.specs); len(left) > 0 {
			return w.took, fmt.Errorf("came when all seemed gone: %s", strings.Join(left, ", "))
		}
	}
	return w.took, w.err
}

// gone waits until nothing of a taskgroup is left, records and leases included, and
// tells how long after the death of its executor that was. Without a death the limit
// counts from now.
func (c *cluster) gone(g string, specs []*api.TaskSpec, death time.Time) (time.Duration, error) {
	died := !death.IsZero()
	if !died {
		death = time.Now()
	}
	var left []string
	err := await(reapLimit, "what an executor left", func() bool {
		left = c.leftOf(g, specs)
		return len(left) == 0
	})
	took := time.Since(death)
	if err == nil {
		if died && os.Getenv(faultsEvery) == "1" && took > reapLimit {
			err = fmt.Errorf("it took %v until nothing was left, and may take %v", took, reapLimit)
		}
		return took, err
	}
	err = fmt.Errorf("%w: %s", err, strings.Join(left, ", "))
	if harness.engine != nil {
		for _, id := range containersOf(c.t, g) {
			err = errors.Join(err, harness.engine.ContainerRemove(context.Background(), id, container.RemoveOptions{Force: true}))
		}
	}
	return took, err
}
