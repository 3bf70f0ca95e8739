package master

import (
	"fmt"
	"net/http"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
)

// subscription is the answer to a SUBSCRIBE: a stream to serve.
type subscription struct {
	frameworkID string
	stream      *wire.Stream
	streamID    string
}

// subscribe handles SUBSCRIBE. A FrameworkInfo that is no good is told on the
// stream, which then ends.
func (m *Master) subscribe(call *scheduler.Call, mt wire.MediaType) subscription {
	s := subscription{stream: wire.NewStream(mt), streamID: wire.NewUUID()}
	info := *call.Subscribe.FrameworkInfo
	if err := validateFramework(info, call.Subscribe.SuppressedRoles); err != nil {
		s.refuse(err.Error())
		return s
	}
	id := info.GetID().GetValue()
	if m.registry.isRemoved(id) {
		s.refuse("Framework has been removed")
		return s
	}
	f := m.frameworks[id]
	if f != nil {
		if err := samePrincipal(f.info, info); err != nil {
			m.log.Warn("a framework was to be taken over by another principal", "framework", id, "principal", f.info.GetPrincipal(), "other", info.GetPrincipal())
			s.refuse(err.Error())
			return s
		}
	}
	tell := m.publishFrameworkUpdated
	if f == nil {
		tell = m.publishFrameworkAdded
		m.count("messages_register_framework")
		if id == "" {
			id = m.newFrameworkID()
		}
		f = m.newFramework(id, info, frameworkDisconnected)
	} else {
		m.count("messages_reregister_framework")
		m.failOver(f, info)
	}
	f.step(frameworkSubscribes)
	s.frameworkID = f.id
	f.stream, f.streamID = s.stream, s.streamID
	f.suppressed = map[string]bool{}
	for _, role := range call.Subscribe.SuppressedRoles {
		f.suppressed[role] = true
	}
	m.log.Info("framework subscribed", "framework", f.id, "name", f.info.Name, "roles", f.roles())
	m.greet(f)
	tell(f)
	m.allocate()
	return s
}

func (s subscription) refuse(message string) {
	s.stream.Send(&scheduler.Event{Type: scheduler.Event_ERROR, Error: &scheduler.Event_Error{Message: message}})
	s.stream.Close()
}

// failOver takes a known framework from whoever had it before.
func (m *Master) failOver(f *framework, info mesos.FrameworkInfo) {
	if f.stream != nil {
		f.send(&scheduler.Event{Type: scheduler.Event_ERROR, Error: &scheduler.Event_Error{Message: "Framework failed over"}})
		f.stream.Close()
	}
	m.detachStream(f)
	m.loop.cancel(f.failover)
	f.failover = nil
	// The new scheduler does not know them; so they end without RESCIND.
	m.discardOffers(f)
	f.filters = nil
	f.update(info)
	f.reregistered = m.loop.now()
}

// update takes over what a framework may change: all but user, checkpoint and principal.
func (f *framework) update(info mesos.FrameworkInfo) {
	info.User, info.Checkpoint, info.Principal, info.ID = f.info.User, f.info.Checkpoint, f.info.Principal, f.info.ID
	f.info = info
}

// greet sends what comes first on a stream, and tells the agents of the framework.
func (m *Master) greet(f *framework) {
	interval := m.flags.HeartbeatInterval.Seconds()
	info := m.info
	f.send(&scheduler.Event{Type: scheduler.Event_SUBSCRIBED, Subscribed: &scheduler.Event_Subscribed{
		FrameworkID: &mesos.FrameworkID{Value: f.id}, HeartbeatIntervalSeconds: &interval, MasterInfo: &info,
	}})
	m.beat(f)
	for _, a := range m.agents {
		if a.holds(f.id) {
			a.send(updateFramework(f.info))
		}
	}
}

// beat sends a heartbeat now and plans the next.
func (m *Master) beat(f *framework) {
	f.send(&scheduler.Event{Type: scheduler.Event_HEARTBEAT})
	f.heartbeat = m.loop.after(m.flags.HeartbeatInterval, func() { m.beat(f) })
}

// updateFrameworkCall handles UPDATE_FRAMEWORK. It returns what Mesos answers to a bad one.
func (m *Master) updateFrameworkCall(f *framework, c *scheduler.Call_UpdateFramework) *wire.Error {
	if err := validateFramework(c.FrameworkInfo, c.SuppressedRoles); err != nil {
		return wire.Errorf(http.StatusBadRequest, "Supplied FrameworkInfo is not valid: %v", err)
	}
	if err := f.mayBecome(c.FrameworkInfo); err != nil {
		return wire.Errorf(http.StatusBadRequest, "FrameworkInfo update is not valid: %v", err)
	}
	f.update(c.FrameworkInfo)
	f.suppressed = map[string]bool{}
	for _, role := range c.SuppressedRoles {
		f.suppressed[role] = true
	}
	roles := f.roles()
	for _, o := range f.offers {
		if !contains(roles, o.role) {
			m.rescind(o)
		}
	}
	for _, a := range m.agents {
		if a.holds(f.id) {
			a.send(updateFramework(f.info))
		}
	}
	m.publishFrameworkUpdated(f)
	m.allocate()
	return nil
}

// mayBecome checks what a framework may not change by UPDATE_FRAMEWORK.
func (f *framework) mayBecome(info mesos.FrameworkInfo) error {
	if err := samePrincipal(f.info, info); err != nil {
		return err
	}
	if info.User != f.info.User {
		return mesosError("Updating 'FrameworkInfo.user' is unsupported; attempted to update from '" + f.info.User + "' to '" + info.User + "'")
	}
	if info.GetCheckpoint() != f.info.GetCheckpoint() {
		return mesosError(fmt.Sprintf("Updating 'FrameworkInfo.checkpoint' is unsupported; attempted to update from '%t' to '%t'", f.info.GetCheckpoint(), info.GetCheckpoint()))
	}
	return nil
}

// validateFramework checks a FrameworkInfo as Mesos does; the texts are Mesos's.
func validateFramework(info mesos.FrameworkInfo, suppressed []string) error {
	multi := hasCapability(info, mesos.FrameworkInfo_Capability_MULTI_ROLE)
	switch {
	case multi && info.Role != nil:
		return mesosError("'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable")
	case !multi && len(info.Roles) > 0:
		return mesosError("'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable")
	}
	roles := rolesOf(info)
	if d := duplicates(roles); len(d) > 0 {
		return mesosError("'FrameworkInfo.roles' contains duplicate items: { " + strings.Join(d, ", ") + " }")
	}
	for _, role := range roles {
		if err := validateRole(role); err != nil {
			field := "role' is not a valid role"
			if multi {
				field = "roles' contains invalid role"
			}
			return mesosError(fmt.Sprintf("'FrameworkInfo.%s: %v", field, err))
		}
	}
	var unknown []string
	for _, role := range suppressed {
		if !contains(roles, role) {
			unknown = append(unknown, role)
		}
	}
	if len(unknown) > 0 {
		return mesosError("Suppressed roles { " + strings.Join(unknown, ", ") + " } are not contained in the set of roles")
	}
	if id := info.GetID().GetValue(); id != "" {
		if err := validateID(id); err != nil {
			return mesosError("Framework ID is invalid: " + err.Error())
		}
	}
	return nil
}

func validateRole(role string) error {
	if role == "*" {
		return nil
	}
	if role == "" {
		return mesosError("Empty role name is invalid")
	}
	for component := range strings.SplitSeq(role, "/") {
		switch {
		case component == "":
			return mesosError("Role '" + role + "' cannot start with a slash, end with a slash, or contain two adjacent slashes")
		case component == "." || component == "..":
			return mesosError("Role component '" + component + "' is invalid because it is a relative path")
		case component == "*":
			return mesosError("Role component '*' is invalid because it is reserved")
		case strings.HasPrefix(component, "-"):
			return mesosError("Role component '" + component + "' is invalid because it begins with a dash")
		case strings.ContainsAny(component, " \t\n\v\f\r\b"):
			return mesosError("Role component '" + component + "' is invalid because it contains backspace or whitespace")
		}
	}
	return nil
}

// mesosError is a text that goes to a framework as it is, in Mesos's own words.
type mesosError string

// Error returns the text.
func (e mesosError) Error() string { return string(e) }

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func duplicates(list []string) []string {
	var out []string
	for i, x := range list {
		if contains(list[:i], x) && !contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}
