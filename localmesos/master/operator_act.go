package master

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/wire"
)

// actors are the calls of the operator API that change something. They run in
// the loop; nil is 200 without a body.
var actors = map[apimaster.Call_Type]func(*Master, *apimaster.Call) *wire.Error{
	apimaster.Call_TEARDOWN: func(m *Master, c *apimaster.Call) *wire.Error {
		return m.teardown(c.Teardown.FrameworkID.Value)
	},
	apimaster.Call_MARK_AGENT_GONE: func(m *Master, c *apimaster.Call) *wire.Error {
		return m.markAgentGone(c.MarkAgentGone.AgentID.Value)
	},
	apimaster.Call_UPDATE_WEIGHTS: func(m *Master, c *apimaster.Call) *wire.Error {
		return m.updateWeights(c.UpdateWeights.WeightInfos)
	},
}

// teardown ends a framework for an operator.
func (m *Master) teardown(id string) *wire.Error {
	f := m.frameworks[id]
	if f == nil {
		return wire.Errorf(http.StatusBadRequest, "No framework found with specified ID")
	}
	m.removeFramework(f)
	return nil
}

// markAgentGone declares that an agent will never come back, whether it is
// there or not. It is recorded before anybody is told.
func (m *Master) markAgentGone(id string) *wire.Error {
	if m.registry.isGone(id) {
		return nil
	}
	_, isRecovered := m.recovered[id]
	_, isUnreachable := m.unreachable[id]
	a := m.agents[id]
	if a == nil && !isRecovered && !isUnreachable {
		return wire.Errorf(http.StatusNotFound, "Agent '%s' not found", id)
	}
	if err := m.registry.markGone(id, m.loop.now()); err != nil {
		m.log.Error("an agent cannot be marked gone", "agent", id, "error", err)
		return wire.Errorf(http.StatusServiceUnavailable, "Agent '%s' cannot be marked gone: %v", id, err)
	}
	delete(m.recovered, id)
	delete(m.unreachable, id)
	m.log.Info("agent is marked gone", "agent", id)
	switch {
	case a != nil:
		m.loseForGood(a)
	case isUnreachable:
		for _, f := range m.frameworks {
			m.endUnreachableTasks(f, id)
		}
	}
	return nil
}

// updateWeights changes the weights of roles. Offers that are out are taken back
// when a role that is in use has changed, so that the next ones follow the weights.
func (m *Master) updateWeights(infos []mesos.WeightInfo) *wire.Error {
	changed := map[string]float64{}
	for _, info := range infos {
		role := strings.TrimSpace(info.GetRole())
		if err := validateRole(role); err != nil {
			return wire.Errorf(http.StatusBadRequest, "Failed to validate update weights request JSON: Invalid role '%s': %v", role, err)
		}
		if !(info.Weight > 0) { // also what is not a number
			return wire.Errorf(http.StatusBadRequest, "Failed to validate update weights request JSON for role '%s': Invalid weight '%s': Weights must be positive",
				role, strconv.FormatFloat(info.Weight, 'g', -1, 64))
		}
		changed[role] = info.Weight
	}
	if err := m.registry.setWeights(changed); err != nil {
		m.log.Error("weights cannot be recorded", "error", err)
		return wire.Errorf(http.StatusServiceUnavailable, "The weights cannot be recorded: %v", err)
	}
	inUse := false
	for role, weight := range changed {
		m.weights[role] = weight
		for _, f := range m.frameworks {
			inUse = inUse || slices.Contains(f.roles(), role)
		}
	}
	if inUse {
		for _, a := range m.sortedAgents() {
			for _, o := range a.offers {
				m.rescind(o)
			}
		}
		m.allocate()
	}
	return nil
}
