package master

import (
	"bytes"
	"encoding/json"
	"errors"

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
	return extend(b)
}

// lacksFields tells whether anything is in a message that extend would change:
// most events have nothing.
func lacksFields(b []byte) bool {
	return bytes.Contains(b, []byte(`"agent_info":`)) || bytes.Contains(b, []byte(`"get_frameworks":`))
}

// parts is an object of which most is passed on as it is: tasks may be many, and
// nothing is to be added to them.
type parts map[string]json.RawMessage

// change decodes one level of an object and encodes it again.
func change(b json.RawMessage, how func(parts) error) (json.RawMessage, error) {
	var p parts
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, err
	}
	if err := how(p); err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// in changes one field of an object, if it is there.
func (p parts) in(key string, how func(json.RawMessage) (json.RawMessage, error)) (err error) {
	if p[key] != nil {
		p[key], err = how(p[key])
	}
	return err
}

// each changes all items of a list.
func each(how func(json.RawMessage) (json.RawMessage, error)) func(json.RawMessage) (json.RawMessage, error) {
	return func(b json.RawMessage) (json.RawMessage, error) {
		var items []json.RawMessage
		err := json.Unmarshal(b, &items)
		for i := range items {
			if err == nil {
				items[i], err = how(items[i])
			}
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(items)
	}
}

// extend adds to a response or an event, or to the parts of GET_STATE.
func extend(b json.RawMessage) (json.RawMessage, error) {
	return change(b, func(p parts) error {
		return errors.Join(
			p.in("subscribed", extend),
			p.in("get_state", extend),
			p.in("agent_added", func(b json.RawMessage) (json.RawMessage, error) {
				return change(b, func(p parts) error { return p.in("agent", extendAgent) })
			}),
			p.in("get_agents", func(b json.RawMessage) (json.RawMessage, error) {
				return change(b, func(p parts) error { return p.in("agents", each(extendAgent)) })
			}),
			p.in("get_frameworks", func(b json.RawMessage) (json.RawMessage, error) {
				return change(b, func(p parts) error {
					return errors.Join(p.in("frameworks", each(extendFramework)), p.in("completed_frameworks", each(extendFramework)))
				})
			}),
		)
	})
}

func extendFramework(b json.RawMessage) (json.RawMessage, error) {
	return change(b, func(p parts) error { p["offer_constraints"] = json.RawMessage("{}"); return nil })
}

func extendAgent(b json.RawMessage) (json.RawMessage, error) {
	return change(b, func(p parts) error {
		return p.in("agent_info", func(b json.RawMessage) (json.RawMessage, error) {
			return change(b, func(p parts) error { p["checkpoint"] = json.RawMessage("true"); return nil })
		})
	})
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
