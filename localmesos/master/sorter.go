package master

import (
	"cmp"
	"slices"
	"strings"

	"tandem/localmesos/internal/resource"
)

// shares is who has how much, for Mesos's hierarchical Dominant Resource
// Fairness: roles compete by the share of all that is held for them and the roles
// below them, over their weight; frameworks compete within a role.
type shares struct {
	// held is what is offered to, or used by, all frameworks of a role.
	held map[string]resource.Quantities
	// turn is when a role, or one below it, was last offered something: those of
	// equal share take turns.
	turn map[string]uint64
}

func newShares() shares {
	return shares{held: map[string]resource.Quantities{}, turn: map[string]uint64{}}
}

func (s shares) add(role string, l resource.List) {
	if s.held[role] == nil {
		s.held[role] = resource.Quantities{}
	}
	s.held[role].Add(l)
}

func (s shares) sub(role string, l resource.List) {
	if s.held[role].Sub(l); len(s.held[role]) == 0 {
		delete(s.held, role)
	}
}

// offered notes that it was the role's turn, and that of all above it.
func (s shares) offered(role string, turn uint64) {
	s.turn[role+"/."] = turn
	for {
		s.turn[role] = turn
		i := strings.LastIndexByte(role, '/')
		if i < 0 {
			return
		}
		role = role[:i]
	}
}

// roleNode is a role, or one that is only above others. A role with others
// below it competes with them by a leaf of its own.
type roleNode struct {
	path     string
	role     string
	children []*roleNode
	held     resource.Quantities
	share    float64
}

// sorted returns roles in the order in which they are to be offered something:
// the poorest branch first, and in it the poorest role.
func (s shares) sorted(roles []string, total resource.Quantities, weight func(string) float64) []string {
	if len(roles) < 2 {
		return roles
	}
	root := &roleNode{held: resource.Quantities{}}
	for _, role := range roles {
		root.insert(role, role)
	}
	for role, held := range s.held {
		root.charge(role, held)
	}
	out := make([]string, 0, len(roles))
	root.walk(func(n *roleNode) float64 { return n.held.DominantShare(total) / weight(n.path) }, s.turn, &out)
	return out
}

func (n *roleNode) insert(rest, role string) {
	head, tail, below := strings.Cut(rest, "/")
	path := head
	if n.path != "" {
		path = n.path + "/" + head
	}
	i := slices.IndexFunc(n.children, func(c *roleNode) bool { return c.path == path })
	if i < 0 {
		i = len(n.children)
		n.children = append(n.children, &roleNode{path: path, held: resource.Quantities{}})
	}
	if below {
		n.children[i].insert(tail, role)
		return
	}
	n.children[i].children = append(n.children[i].children, &roleNode{path: path + "/.", role: role, held: resource.Quantities{}})
}

// charge adds what a role holds to all nodes that it is, or is below.
func (n *roleNode) charge(role string, held resource.Quantities) {
	for _, c := range n.children {
		if c.role == role || c.path == role || strings.HasPrefix(role, c.path+"/") {
			for name, amount := range held {
				c.held[name] += amount
			}
			c.charge(role, held)
		}
	}
}

func (n *roleNode) walk(share func(*roleNode) float64, turn map[string]uint64, out *[]string) {
	if n.role != "" {
		*out = append(*out, n.role)
		return
	}
	for _, c := range n.children {
		c.share = share(c)
	}
	slices.SortFunc(n.children, func(a, b *roleNode) int {
		return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(turn[a.path], turn[b.path]), cmp.Compare(a.path, b.path))
	})
	for _, c := range n.children {
		c.walk(share, turn, out)
	}
}
