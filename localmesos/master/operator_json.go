package master

import (
	"bytes"
	"encoding/json"

	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/wire"
)

// operatorJSON encodes a response with what Mesos 1.12 shows and the Go types
// lack: fields that came later.
func (m *Master) operatorJSON(r *apimaster.Response) ([]byte, error) {
	b, err := wire.MarshalJSON(r)
	if err != nil {
		return nil, err
	}
	var tree object
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	m.extend(tree)
	return json.Marshal(tree)
}

// extend adds to a response, or to the parts of GET_STATE.
func (m *Master) extend(tree object) {
	for key, part := range tree {
		part, ok := part.(object)
		if !ok {
			continue
		}
		switch key {
		case "get_state":
			m.extend(part)
		case "get_master":
			part["start_time"], part["elected_time"] = seconds(m.started), seconds(m.started)
		case "get_agents":
			for _, a := range objects(part["agents"]) {
				a["deactivated"], a["capabilities"] = false, agentCapabilities
				if info, ok := a["agent_info"].(object); ok {
					info["checkpoint"] = true
				}
			}
		case "get_frameworks":
			for _, name := range []string{"frameworks", "completed_frameworks"} {
				for _, f := range objects(part[name]) {
					f["offer_constraints"] = object{}
					// Mesos shows the first registration as a second one, too.
					if f["reregistered_time"] == nil {
						f["reregistered_time"] = f["registered_time"]
					}
				}
			}
		}
	}
}

// agentCapabilities are those of all agents here.
var agentCapabilities = func() []object {
	var out []object
	for _, name := range agentCapabilityNames {
		out = append(out, object{"type": name})
	}
	return out
}()

var agentCapabilityNames = []string{"AGENT_DRAINING", "AGENT_OPERATION_FEEDBACK", "HIERARCHICAL_ROLE", "MULTI_ROLE", "RESERVATION_REFINEMENT",
	"RESIZE_VOLUME", "RESOURCE_PROVIDER", "TASK_RESOURCE_LIMITS"}

func objects(v any) []object {
	items, ok := v.([]any)
	if !ok {
		return nil
	}
	var out []object
	for _, item := range items {
		if o, ok := item.(object); ok {
			out = append(out, o)
		}
	}
	return out
}
