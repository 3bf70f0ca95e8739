package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/network"
	"tandem/scheduler/placement"
	"tandem/scheduler/wire"
)

// Keys of the store. The values are JSON of the types below.
const (
	keyFramework = "framework"
	prefixObject = "object/"
	prefixSlot   = "slot/"
)

func objectKey(r api.Ref) string { return prefixObject + r.String() }

func slotKey(r api.Ref, index int) string { return fmt.Sprintf("%s%s/%05d", prefixSlot, r, index) }

// frameworkRecord remembers as whom to subscribe again.
type frameworkRecord struct {
	ID string `json:"id"`
}

// objectRecord is a declared object.
type objectRecord struct {
	Raw      json.RawMessage `json:"raw"`
	Created  time.Time       `json:"created"`
	Updated  time.Time       `json:"updated"`
	Deleting bool            `json:"deleting,omitempty"`
	// Restarts counts the restarts that were asked for; it is a part of the generation.
	Restarts int `json:"restarts,omitempty"`
}

// slotRecord is an instance of a workload: its place in the row of instances,
// with at most one taskgroup. It outlives its taskgroups, so that the counters
// of the restart policy do.
type slotRecord struct {
	Owner api.Ref `json:"owner"`
	Index int     `json:"index"`
	// Attempts and NotBefore are the restart policy's.
	Attempts  int       `json:"attempts,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Restarts counts the taskgroups that came after the first one by policy.
	Restarts int `json:"restarts,omitempty"`
	// Host is where the last taskgroup failed, and Retain until when only that host may take the next.
	Host   string    `json:"host,omitempty"`
	Retain time.Time `json:"retain,omitzero"`
	// Done tells that the policy has come to its end: Group shows how.
	Done  bool         `json:"done,omitempty"`
	Group *groupRecord `json:"group,omitempty"`
}

// groupRecord is a taskgroup that was handed to Mesos. It is stored before ACCEPT is sent.
type groupRecord struct {
	ID         string                `json:"id"`
	Generation string                `json:"generation"`
	State      string                `json:"state"`
	AgentID    string                `json:"agentID"`
	Hostname   string                `json:"hostname"`
	NodeIP     string                `json:"nodeIP"`
	AgentURL   string                `json:"agentURL,omitempty"`
	Attributes []placement.Attribute `json:"attributes,omitempty"`
	Labels     map[string]string     `json:"labels,omitempty"`
	Need       placement.Resources   `json:"need"`
	Ledger     []network.Claim       `json:"ledger,omitempty"`
	Created    time.Time             `json:"created"`
	Running    time.Time             `json:"running,omitzero"`
	Ended      time.Time             `json:"ended,omitzero"`
	// Kill says why the taskgroup is to end: one of the kill constants, empty while it is not.
	Kill  string `json:"kill,omitempty"`
	Grace int64  `json:"grace,omitempty"`
	// Drain is the time before the grace period, in seconds as that is.
	Drain int64 `json:"drain,omitempty"`
	// Unreachable is since when nobody knows of it.
	Unreachable time.Time    `json:"unreachable,omitzero"`
	Message     string       `json:"message,omitempty"`
	Tasks       []taskRecord `json:"tasks"`
}

// Reasons of groupRecord.Kill.
const (
	killSurplus = "surplus" // the instance or the workload is not wanted any more
	killReplace = "replace" // another generation, or a restart, takes its place
	killRest    = "rest"    // a task of it has failed; its policy says what comes next
)

// taskRecord is a task of a taskgroup.
type taskRecord struct {
	ID   string       `json:"id"`
	Name string       `json:"name"`
	Kind api.TaskKind `json:"kind"`
	// Lifecycle is that of the TaskSpec.
	Lifecycle string          `json:"lifecycle,omitempty"`
	State     mesos.TaskState `json:"state"`
	Reason    string          `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	// Checked tells that the executor makes health checks of it; Healthy is what
	// they say, absent while that is not known.
	Checked bool            `json:"checked,omitempty"`
	Healthy *bool           `json:"healthy,omitempty"`
	Ports   []api.TaskPort  `json:"ports,omitempty"`
	Report  *api.TaskReport `json:"report,omitempty"`
	Changed time.Time       `json:"changed,omitzero"`
	// UUID is the last update's, to know it when it comes again.
	UUID []byte `json:"uuid,omitempty"`
}

// terminal tells whether a task in this state never runs again. UNREACHABLE and
// UNKNOWN are not: the task may come back.
func terminal(s mesos.TaskState) bool {
	switch s {
	case mesos.TASK_FINISHED, mesos.TASK_FAILED, mesos.TASK_KILLED, mesos.TASK_ERROR,
		mesos.TASK_LOST, mesos.TASK_DROPPED, mesos.TASK_GONE, mesos.TASK_GONE_BY_OPERATOR:
		return true
	default:
		return false
	}
}

// presumed tells whether a task in this state has ended as far as Mesos knows,
// which need not be how it really ended.
func presumed(s mesos.TaskState) bool {
	switch s {
	case mesos.TASK_LOST, mesos.TASK_DROPPED, mesos.TASK_GONE, mesos.TASK_GONE_BY_OPERATOR:
		return true
	default:
		return false
	}
}

// broken tells whether a task has ended other than well.
func (g *groupRecord) broken() bool {
	for i := range g.Tasks {
		if s := g.Tasks[i].State; terminal(s) && s != mesos.TASK_FINISHED {
			return true
		}
	}
	return false
}

// ended tells whether all tasks have come to their end.
func (g *groupRecord) ended() bool {
	for i := range g.Tasks {
		if !terminal(g.Tasks[i].State) {
			return false
		}
	}
	return true
}

// charged are the ports that the taskgroup has of the agent's ports resource.
func (g *groupRecord) charged() network.Ranges {
	var ports network.Ranges
	for i := range g.Tasks {
		for _, p := range g.Tasks[i].Ports {
			outside := slices.ContainsFunc(g.Ledger, func(c network.Claim) bool { return c.Port == p.HostPort })
			if p.HostPort > 0 && !outside {
				ports = append(ports, network.Range{Begin: p.HostPort, End: p.HostPort})
			}
		}
	}
	return ports.Normalize()
}

// inStopOrder returns the tasks with the main ones before their sidecars: an
// executor holds the end of a sidecar back when the main tasks are to end too.
func (g *groupRecord) inStopOrder() []*taskRecord {
	out := make([]*taskRecord, len(g.Tasks))
	for i := range g.Tasks {
		out[i] = &g.Tasks[i]
	}
	slices.SortStableFunc(out, func(a, b *taskRecord) int {
		return api.LifecycleOrder(b.Lifecycle) - api.LifecycleOrder(a.Lifecycle)
	})
	return out
}

// live counts as occupying its agent: for constraints, ports and the list of agents.
func (s *slotRecord) live() bool { return s.Group != nil && !s.Group.ended() }

// derive computes the taskgroup's state from those of its tasks.
func (g *groupRecord) derive(now time.Time) {
	var n, running, unreachable, lost, failed, killed, finished, starting, killing int
	for i := range g.Tasks {
		n++
		switch g.Tasks[i].State {
		case mesos.TASK_RUNNING:
			running++
		case mesos.TASK_FINISHED:
			finished++
		case mesos.TASK_FAILED, mesos.TASK_ERROR:
			failed++
		case mesos.TASK_KILLED:
			killed++
		case mesos.TASK_LOST, mesos.TASK_DROPPED, mesos.TASK_GONE, mesos.TASK_GONE_BY_OPERATOR:
			lost++
		case mesos.TASK_UNREACHABLE, mesos.TASK_UNKNOWN:
			unreachable++
		case mesos.TASK_STARTING:
			starting++
		case mesos.TASK_KILLING:
			killing++
		case mesos.TASK_STAGING:
		}
	}
	if unreachable == 0 {
		g.Unreachable = time.Time{}
	} else if g.Unreachable.IsZero() {
		g.Unreachable = now
	}
	switch {
	case failed+killed+lost+finished == n:
		if g.Ended.IsZero() {
			g.Ended = now
		}
		switch {
		case failed > 0:
			g.State = wire.Failed
		case lost > 0:
			g.State = wire.Lost
		case killed > 0:
			g.State = wire.Killed
		default:
			g.State = wire.Finished
		}
	case g.Kill != "":
		g.State = wire.Killing
	case unreachable > 0:
		g.State = wire.Unreachable
	case failed+killed+lost+killing > 0:
		// One has ended badly, or is being ended by its executor: the rest follows, whoever asks for it.
		g.State = wire.Killing
	case running+finished == n:
		g.State = wire.Running
		if g.Running.IsZero() {
			g.Running = now
		}
	case running+starting > 0:
		g.State = wire.Starting
	default:
		if g.State != wire.Launching {
			g.State = wire.Starting
		}
	}
}

// invalid tells whether a task was refused rather than failed.
func (g *groupRecord) invalid() bool {
	for i := range g.Tasks {
		if g.Tasks[i].State == mesos.TASK_ERROR {
			return true
		}
	}
	return false
}

// why is the message of the task that tells most about the taskgroup's state.
func (g *groupRecord) why() string {
	rank := func(s mesos.TaskState) int {
		switch s {
		case mesos.TASK_ERROR, mesos.TASK_FAILED:
			return 3
		case mesos.TASK_LOST, mesos.TASK_GONE, mesos.TASK_DROPPED, mesos.TASK_UNREACHABLE, mesos.TASK_UNKNOWN:
			return 2
		case mesos.TASK_RUNNING, mesos.TASK_FINISHED:
			return 0
		default:
			return 1
		}
	}
	best, text := -1, ""
	over := !slices.ContainsFunc(g.Tasks, func(t taskRecord) bool { return !terminal(t.State) })
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if !over && t.State == mesos.TASK_FINISHED {
			continue // an init task that is done says nothing of those that run
		}
		if r := rank(t.State); r > best && t.Message != "" {
			best, text = r, t.Message
			if len(g.Tasks) > 1 && !strings.Contains(text, t.Name) {
				text = t.Name + ": " + text
			}
		}
	}
	return text
}
