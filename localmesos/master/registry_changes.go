package master

import (
	"fmt"
	"maps"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/wire"
)

// admit records an agent as registered and reachable. When that fails nothing is changed.
func (r *registry) admit(info mesos.AgentInfo) error {
	b, err := wire.MarshalJSON(&info)
	if err != nil {
		return fmt.Errorf("mesos master: encoding agent %s: %w", info.GetID().Value, err)
	}
	id := info.GetID().Value
	if _, gone := r.data.Unreachable[id]; !gone && string(r.data.Agents[id]) == string(b) {
		return nil
	}
	before := r.data
	r.data.Agents, r.data.Unreachable = maps.Clone(before.Agents), maps.Clone(before.Unreachable)
	r.data.Agents[id] = b
	delete(r.data.Unreachable, id)
	return r.writeOr(before)
}

// lose records agents as unreachable.
func (r *registry) lose(id string, since time.Time) error {
	delete(r.data.Agents, id)
	r.data.Unreachable[id] = unreachableAgent{Since: since}
	bound(r.data.Unreachable)
	return r.write()
}

// forget removes an agent.
func (r *registry) forget(id string) error {
	delete(r.data.Agents, id)
	delete(r.data.Unreachable, id)
	return r.write()
}

// removeFramework records that a framework must not come back.
func (r *registry) removeFramework(id string) error {
	r.data.Removed = append(r.data.Removed, id)
	if n := len(r.data.Removed) - maxRemovedFrameworks; n > 0 {
		r.data.Removed = slices.Delete(r.data.Removed, 0, n)
	}
	return r.write()
}

func (r *registry) isRemoved(id string) bool { return slices.Contains(r.data.Removed, id) }

// markGone records that an agent must not come back. When that fails nothing is changed.
func (r *registry) markGone(id string, since time.Time) error {
	before := r.data
	r.data.Agents, r.data.Unreachable, r.data.Gone = maps.Clone(before.Agents), maps.Clone(before.Unreachable), maps.Clone(before.Gone)
	delete(r.data.Agents, id)
	delete(r.data.Unreachable, id)
	r.data.Gone[id] = unreachableAgent{Since: since}
	bound(r.data.Gone)
	return r.writeOr(before)
}

// setWeights records weights of roles. When that fails nothing is changed.
func (r *registry) setWeights(weights map[string]float64) error {
	before := r.data
	r.data.Weights = maps.Clone(before.Weights)
	maps.Copy(r.data.Weights, weights)
	return r.writeOr(before)
}

// writeOr puts the data back as they were when they cannot be written.
func (r *registry) writeOr(before registryData) error {
	err := r.write()
	if err != nil {
		r.data = before
	}
	return err
}

// bound forgets the oldest of too many agents.
func bound(agents map[string]unreachableAgent) {
	for len(agents) > maxLostAgents {
		oldest := ""
		for id, a := range agents {
			if oldest == "" || a.Since.Before(agents[oldest].Since) {
				oldest = id
			}
		}
		delete(agents, oldest)
	}
}

func (r *registry) isGone(id string) bool {
	_, ok := r.data.Gone[id]
	return ok
}
