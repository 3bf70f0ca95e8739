package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tandem/executor/container/internal/engine"
	"tandem/internal/journal"
)

// NewCleaner returns the undoing of one journal record of kind Kind, for the
// process daemon to call for the records of dead executors. It removes the
// container that the record means, running or not, and nil means that nothing
// is left. It is found by its name and by its labels, so a record whose
// container never got an id recorded is served too. Containers that do not carry
// the record's owner and task in their labels are never touched. host is the
// engine's socket, as in Options.
func NewCleaner(host string) func(ctx context.Context, rec journal.Record) error {
	c, hostErr := engine.New(host)
	return func(ctx context.Context, rec journal.Record) error {
		if hostErr != nil {
			return hostErr
		}
		defer c.Close()
		if err := clean(ctx, c, rec); err != nil {
			return fmt.Errorf("remove the container of task %q, whose executor is dead: %w", rec.ID, err)
		}
		return nil
	}
}

func clean(ctx context.Context, c *engine.Client, rec journal.Record) error {
	var data Record
	if len(rec.Data) > 0 {
		if err := json.Unmarshal(rec.Data, &data); err != nil {
			return fmt.Errorf("journal record: %w", err)
		}
	}
	if data.Name == "" {
		data.Name = containerName(rec.ID)
	}
	removed, fence := false, standing{}
	drop := func(id string, labels map[string]string, since time.Time) error {
		if labels[labelFence] != "" {
			if fence.id == "" {
				fence = standing{id, since} // of a reaper that died; it goes on standing
			}
			return nil
		}
		known, err := removeKnown(ctx, c, id)
		removed = removed || known
		return err
	}
	byName, err := find(ctx, c, data.Name, rec.Owner, rec.ID)
	var foreign *foreignError
	taken := errors.As(err, &foreign) // by somebody else: not what the record means
	if err != nil && !taken {
		return err
	}
	if byName != nil {
		if err := drop(byName.ID, byName.Config.Labels, byName.Created); err != nil {
			return err
		}
	}
	// One that somebody renamed is found by its labels.
	list, err := c.List(ctx, map[string]string{labelOwner: rec.Owner, labelTask: rec.ID})
	if err != nil {
		return err
	}
	for _, s := range list {
		if err := drop(s.ID, s.Labels, time.Now()); err != nil {
			return err
		}
	}
	// At once: they may be secrets. A container that is yet to come is not started without its executor.
	if err := removeFiles(data.Files); err != nil {
		return err
	}
	if removed && fence.id != "" {
		return remove(ctx, c, fence.id)
	}
	if removed || taken {
		// Nobody makes the same one twice, nor one of a name that somebody else has.
		return nil
	}
	return awaitNone(ctx, c, rec, &data, fence)
}
