package master

import (
	"bytes"
	"encoding/json"

	"github.com/gogo/protobuf/proto"
	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/wire"
)

// operatorJSON encodes a response or an event with what Mesos 1.12 shows and the
// Go types lack: fields that came later.
func operatorJSON(message proto.Message) ([]byte, error) {
	b, err := wire.MarshalJSON(message)
	if err != nil || !lacksFields(b) {
		return b, err
	}
	var tree object
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	extend(tree)
	return json.Marshal(tree)
}

// lacksFields tells whether anything is in a message that extend would change:
// most events have nothing.
func lacksFields(b []byte) bool {
	return bytes.Contains(b, []byte(`"agent_info":`)) || bytes.Contains(b, []byte(`"get_frameworks":`))
}

// extend adds to a response, or to the parts of GET_STATE.
func extend(tree object) {
	for key, part := range tree {
		part, ok := part.(object)
		if !ok {
			continue
		}
		switch key {
		case "subscribed", "get_state":
			extend(part)
		case "get_agents":
			for _, a := range objects(part["agents"]) {
				extendAgent(a)
			}
		case "agent_added":
			if a, ok := part["agent"].(object); ok {
				extendAgent(a)
			}
		case "get_frameworks":
			for _, name := range []string{"frameworks", "completed_frameworks"} {
				for _, f := range objects(part[name]) {
					f["offer_constraints"] = object{}
				}
			}
		}
	}
}

func extendAgent(a object) {
	if info, ok := a["agent_info"].(object); ok {
		info["checkpoint"] = true
	}
}

// agentCapabilities are those of all agents here.
var agentCapabilities = []mesos.AgentInfo_Capability{
	{Type: mesos.AgentInfo_Capability_AGENT_DRAINING}, {Type: mesos.AgentInfo_Capability_AGENT_OPERATION_FEEDBACK},
	{Type: mesos.AgentInfo_Capability_HIERARCHICAL_ROLE}, {Type: mesos.AgentInfo_Capability_MULTI_ROLE},
	{Type: mesos.AgentInfo_Capability_RESERVATION_REFINEMENT}, {Type: mesos.AgentInfo_Capability_RESIZE_VOLUME},
	{Type: mesos.AgentInfo_Capability_RESOURCE_PROVIDER}, {Type: mesos.AgentInfo_Capability_TASK_RESOURCE_LIMITS},
}

// agentCapabilityNames are the same for the endpoints that are older.
var agentCapabilityNames = func() (out []string) {
	for _, c := range agentCapabilities {
		out = append(out, c.Type.String())
	}
	return out
}()

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
