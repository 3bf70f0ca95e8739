package network

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"tandem/api"
)

// Claim is one port number on an agent that a taskgroup wants for itself.
type Claim struct {
	Port     int
	Protocol string
	// Name is the port's name, Task the task's; both for messages.
	Name, Task string
}

// label names the claimed port for people.
func (c Claim) label() string {
	if c.Name != "" {
		return fmt.Sprintf("port %q", c.Name)
	}
	return fmt.Sprintf("port %d", c.Port)
}

// Demand is what a taskgroup needs of an agent's ports.
type Demand struct {
	// Random is the number of ports to draw from the offer.
	Random int
	// Fixed are the ports with a number of their own.
	Fixed []Claim
}

// Needs says what the taskgroup needs. Declarations that ValidatePorts refuses count for nothing.
func Needs(g Group) Demand {
	var d Demand
	for i := range g.Tasks {
		t := &g.Tasks[i]
		for _, p := range t.Ports {
			r := apply(g.Mode, t, p)
			switch {
			case r.problem != "":
			case r.host == drawn:
				d.Random++
			case r.host == fixed:
				d.Fixed = append(d.Fixed, Claim{Port: r.number, Protocol: r.protocol, Name: p.Name, Task: t.Name})
			}
		}
	}
	return d
}

// Chooser picks one of n > 0 free ports, in ascending order, by its index from 0.
type Chooser func(n int) int

// First always picks the lowest free port: for tests and for people who read along.
func First(int) int { return 0 }

// Random picks any free port. A port that was just given back is then unlikely
// to be handed out at once, while its last connections may still linger.
func Random(n int) int { return rand.IntN(n) }

// Drawn is the settled ports of a taskgroup.
type Drawn struct {
	// Tasks holds each task's ports, in the order of the group and of its declarations.
	Tasks [][]api.TaskPort
	// Charged are the ports to take from the offer, each once.
	Charged Ranges
	// Ledger are the fixed ports outside the advertised range, to be reserved in the Ledger.
	Ledger []Claim
}

// Draw settles the ports of a taskgroup against an offer. advertised is the
// agent's whole ports resource, offered the part of it that the offer holds. It
// changes nothing: the caller charges Charged and reserves Ledger. The same
// group, ranges and choices give the same result. The group must have passed
// ValidatePorts; if it has not, its errors come back.
func Draw(g Group, offered, advertised Ranges, choose Chooser) (Drawn, error) {
	if err := ValidatePorts(g).Sorted(); err != nil {
		return Drawn{}, err
	}
	offered, advertised = offered.Normalize(), advertised.Normalize()
	need := Needs(g)
	out := Drawn{}
	var charged []int
	free := offered
	for _, c := range need.Fixed {
		switch {
		case !advertised.Contains(c.Port) && !offered.Contains(c.Port):
			out.Ledger = append(out.Ledger, c)
		// One number may be claimed once for tcp and once for udp; Mesos knows no protocols.
		case slices.Contains(charged, c.Port):
		case !offered.Contains(c.Port):
			return Drawn{}, &NotOfferedError{Claim: c}
		default:
			charged = append(charged, c.Port)
			free = free.Without(c.Port)
		}
	}
	if have := free.Len(); have < need.Random {
		return Drawn{}, &TooFewError{Need: need.Random, Have: have}
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		ports := make([]api.TaskPort, 0, len(t.Ports))
		for _, d := range t.Ports {
			r := apply(g.Mode, t, d)
			p := api.TaskPort{Name: d.Name, ContainerPort: r.container, HostPort: r.number, Protocol: r.protocol}
			if r.host == drawn {
				p.HostPort = free.Nth(choose(free.Len()))
				free = free.Without(p.HostPort)
				charged = append(charged, p.HostPort)
			}
			if p.ContainerPort == 0 {
				p.ContainerPort = p.HostPort
			}
			ports = append(ports, p)
		}
		out.Tasks = append(out.Tasks, ports)
	}
	out.Charged = Ports(charged...)
	return out, nil
}

// NotOfferedError says that a fixed port belongs to the agent's ports resource
// but not to the offer: another task holds it.
type NotOfferedError struct {
	Claim Claim
}

// Error names the port and the remedy.
func (e *NotOfferedError) Error() string {
	return fmt.Sprintf("%s: hostPort %d is in use on this agent (it belongs to the agent's ports resource and is not in the offer); choose another or use 0 for a random one",
		e.Claim.label(), e.Claim.Port)
}

// TooFewError says that an offer has fewer free ports than the taskgroup draws.
type TooFewError struct {
	Need, Have int
}

// Error names both numbers and the remedy.
func (e *TooFewError) Error() string {
	return fmt.Sprintf("the taskgroup needs %d random ports, the offer has %d; wait for ports to be freed or enlarge the agent's ports resource", e.Need, e.Have)
}
