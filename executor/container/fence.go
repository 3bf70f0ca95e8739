package container

import (
	"context"
	"fmt"
	"time"

	"tandem/executor/container/internal/engine"
	"tandem/internal/failpoint"
	"tandem/internal/journal"
	"tandem/internal/procid"
)

// A record without a container leaves a doubt: the dead executor may never have
// asked for it, or the engine may still be making it, since an engine goes on with
// what a client that has died since asked it for. Waiting settles that only if one
// knows for how long. The engine itself can tell: it gives a name away once, before it
// makes anything of the container. So the reaper asks for a container of that very name:
//
//   - The engine refuses (409): it is at work on the dead executor's. It comes, and is removed.
//   - The engine does not know the image (404), which it looks for before it looks at
//     the name: it cannot make the executor's either.
//   - The engine makes it: the name is ours, a fence. A request of the executor's that
//     the engine has not come to yet is refused as long as the fence stands.
//
// The fence stands for fenceTime, and for longer with an engine that took long to
// make it. What the dead executor wrote into the engine's socket has been there since
// before the reaper's first call, so it would have to lie unread all that time, while
// the engine takes, answers and carries out the later calls of the reaper. What could come even
// after that is a container that is never started, as only its executor would do that.
const (
	fenceTime = time.Second
	// fenceFactor times what the engine took to make the fence is the least for it to stand.
	fenceFactor = 2
	// settle is how long "there is none" is not believed where no fence can be made: for
	// records of older executors, which do not name the image, and engines that refuse.
	settle = 10 * time.Second
	// longAgo is the age of a record from which on nothing of its executor can still be
	// under way: longer than any call to an engine may take.
	longAgo = 5 * time.Minute
)

// standing is a fence, and since when it stands.
type standing struct {
	id    string
	since time.Time
}

// labelFence marks a container that keeps a name from being taken.
const labelFence = "tandem.fence"

// awaitNone returns nil when the container of a record is not there and cannot come
// any more. fence is one that an earlier reaper left, if any.
func awaitNone(ctx context.Context, c *engine.Client, rec journal.Record, data *Record, fence standing) error {
	age := time.Since(rec.Created)
	if boot, err := procid.BootID(); err == nil && rec.BootID != "" && rec.BootID != boot {
		age = longAgo // no request outlives the boot
	}
	stand := fenceTime
	if fence.id == "" {
		if age >= longAgo {
			return nil
		}
		if data.Image == "" {
			return believeLater(age, nil)
		}
		begin := time.Now()
		id, err := c.Create(ctx, data.Name, fenceSpec(rec, data.Image))
		switch {
		case engine.IsNotFound(err):
			return nil
		case engine.IsConflict(err):
			return fmt.Errorf("the engine is just making it; looking again: %w", err)
		case engine.IsUnreachable(err):
			return err
		case err != nil:
			return believeLater(age, err)
		}
		fence = standing{id, time.Now()}
		stand = max(stand, fenceFactor*time.Since(begin))
	}
	if err := failpoint.Inject("container/fenced"); err != nil {
		return err
	}
	// The clock of a fence that was found may be another one: it never stands for longer than a new one.
	select {
	case <-time.After(min(stand, stand-time.Since(fence.since))):
	case <-ctx.Done():
		return fmt.Errorf("looking again: %w", ctx.Err())
	}
	return remove(ctx, c, fence.id)
}

// believeLater is for records without a fence.
func believeLater(age time.Duration, why error) error {
	if age < 0 || age >= settle { // a clock that was set back would keep it for as long
		return nil
	}
	err := fmt.Errorf("there is none, but the engine may still be making it; looking again until %v after the record was written", settle)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// fenceSpec is the least that the engine makes a container of. It bears the labels of
// the one that it stands for, so that whoever looks for that finds the fence.
func fenceSpec(rec journal.Record, image string) *engine.Spec {
	return &engine.Spec{
		Image: image, Entrypoint: []string{"/never-started"},
		Labels:     map[string]string{labelOwner: rec.Owner, labelTask: rec.ID, labelFence: "1"},
		HostConfig: engine.HostConfig{NetworkMode: "none", LogConfig: engine.LogConfig{Type: "none"}},
	}
}
