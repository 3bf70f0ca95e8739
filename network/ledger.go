package network

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Ledger keeps the fixed ports that are no Mesos resource, because they lie
// outside the range that their agent advertises: who of the scheduler's own
// taskgroups holds which port and protocol on which agent. It lives in memory
// and is rebuilt from the stored taskgroups. It is not safe for concurrent use:
// the event loop that places taskgroups owns it.
type Ledger struct {
	agents map[string]map[portKey]string
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{agents: map[string]map[portKey]string{}}
}

// Reserve takes all the claims for owner, a taskgroup id, on agent, or none of
// them. What the owner holds already may be reserved again. When claims are
// taken, the error joins one *ConflictError for each.
func (l *Ledger) Reserve(agent, owner string, claims []Claim) error {
	if err := l.Check(agent, owner, claims); err != nil {
		return err
	}
	if len(claims) == 0 {
		return nil
	}
	held := l.agents[agent]
	if held == nil {
		held = map[portKey]string{}
		l.agents[agent] = held
	}
	for _, c := range claims {
		held[portKey{c.Port, c.Protocol}] = owner
	}
	return nil
}

// Check says whether Reserve would succeed, and changes nothing.
func (l *Ledger) Check(agent, owner string, claims []Claim) error {
	var errs []error
	for _, c := range claims {
		if holder, ok := l.Holder(agent, c.Port, c.Protocol); ok && holder != owner {
			errs = append(errs, &ConflictError{Claim: c, Agent: agent, Holder: holder})
		}
	}
	return errors.Join(errs...)
}

// Holder returns the taskgroup that holds a port.
func (l *Ledger) Holder(agent string, port int, protocol string) (string, bool) {
	owner, ok := l.agents[agent][portKey{port, protocol}]
	return owner, ok
}

// Release gives back everything that owner holds on agent. It is idempotent.
func (l *Ledger) Release(agent, owner string) {
	held := l.agents[agent]
	for k, o := range held {
		if o == owner {
			delete(held, k)
		}
	}
	if len(held) == 0 {
		delete(l.agents, agent)
	}
}

// Held lists what is reserved on an agent, by port and protocol. Claim.Task is the holder.
func (l *Ledger) Held(agent string) []Claim {
	out := make([]Claim, 0, len(l.agents[agent]))
	for k, owner := range l.agents[agent] {
		out = append(out, Claim{Port: k.port, Protocol: k.protocol, Task: owner})
	}
	slices.SortFunc(out, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return out
}

// ConflictError says that another taskgroup holds a port.
type ConflictError struct {
	Claim  Claim
	Agent  string
	Holder string
}

// Error names the port, its holder and the remedy.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: hostPort %d is already used by %s on this agent; choose another or use 0 for a random one",
		e.Claim.label(), e.Claim.Port, DisplayOwner(e.Holder))
}

// DisplayOwner shortens a taskgroup id, {index}.{app}.{namespace}.{cluster}.{timestamp},
// to namespace/app-index; anything else stays as it is.
func DisplayOwner(id string) string {
	p := strings.Split(id, ".")
	if len(p) != 5 {
		return id
	}
	return p[2] + "/" + p[1] + "-" + p[0]
}
