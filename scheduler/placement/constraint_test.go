package placement

import (
	"strings"
	"testing"

	"tandem/api"
	"tandem/network"
)

func text(name, value string) Attribute { return Attribute{Name: name, Kind: Text, Text: value} }

func set(name string, items ...string) Attribute { return Attribute{Name: name, Kind: Set, Set: items} }

func scalar(name string, v float64) Attribute { return Attribute{Name: name, Kind: Scalar, Scalar: v} }

func ranges(name string, begin, end uint64) Attribute {
	return Attribute{Name: name, Kind: Range, Ranges: []Span{{begin, end}}}
}

// one makes a constraint with one term.
func one(terms ...api.ConstraintTerm) Constraint {
	return Constraint{api.Constraint{IntersectionItem: []api.ConstraintItem{{UnionData: terms}}}}
}

func byText(op, name, v string) api.ConstraintTerm {
	return api.ConstraintTerm{Name: name, Operate: op, Type: api.ValueText, Text: &api.ConstraintText{Value: v}}
}

func bySet(op, name string, items ...string) api.ConstraintTerm {
	return api.ConstraintTerm{Name: name, Operate: op, Type: api.ValueSet, Set: &api.ConstraintSet{Item: items}}
}

func byScalar(op, name string, v float64) api.ConstraintTerm {
	return api.ConstraintTerm{Name: name, Operate: op, Type: api.ValueScalar, Scalar: &api.ConstraintScalar{Value: v}}
}

// TestOperators has for each operator what fits and what does not. Where
// earlier systems let a term pass because types did not match or an attribute
// was missing, it fails here.
func TestOperators(t *testing.T) {
	t.Parallel()
	mine := func(id string, attrs ...Attribute) Live {
		return Live{ID: id, App: "test/web", AgentID: "other", Hostname: "other", Attributes: attrs}
	}
	foreign := func(agent string, labels map[string]string) Live {
		return Live{ID: "f", App: "test/db", AgentID: agent, Hostname: agent, Labels: labels}
	}
	zone := text("zone", "a")
	cases := []struct {
		name  string
		c     Constraint
		attrs []Attribute
		live  []Live
		fits  bool
	}{
		{"no constraint", Constraint{}, nil, nil, true},

		{"LIKE text", one(byText("LIKE", "zone", "a")), []Attribute{zone}, nil, true},
		{"LIKE other text", one(byText("LIKE", "zone", "b")), []Attribute{zone}, nil, false},
		{"LIKE shell pattern", one(byText("LIKE", "zone", "eu-*")), []Attribute{text("zone", "eu-1")}, nil, true},
		{"LIKE shell pattern that does not match", one(byText("LIKE", "zone", "eu-?")), []Attribute{text("zone", "us-11")}, nil, false},
		{"LIKE expression, searched", one(byText("LIKE", "zone", "eu-[0-9]+")), []Attribute{text("zone", "x-eu-12-y")}, nil, true},
		{"LIKE anchored expression", one(byText("LIKE", "zone", "^eu-[0-9]+$")), []Attribute{text("zone", "x-eu-12-y")}, nil, false},
		{"LIKE one of a set", one(bySet("LIKE", "zone", "b", "a")), []Attribute{zone}, nil, true},
		{"LIKE none of a set", one(bySet("LIKE", "zone", "b", "c")), []Attribute{zone}, nil, false},
		{"LIKE an item of a set attribute", one(byText("LIKE", "disks", "ssd")), []Attribute{set("disks", "hdd", "ssd")}, nil, true},
		{"LIKE on a scalar attribute", one(byText("LIKE", "cores", "8")), []Attribute{scalar("cores", 8)}, nil, false},
		{"LIKE on a range attribute", one(byText("LIKE", "vlan", "1-9")), []Attribute{ranges("vlan", 1, 9)}, nil, false},
		{"LIKE without the attribute", one(byText("LIKE", "rack", ".*")), []Attribute{zone}, nil, false},
		{"LIKE hostname", one(byText("LIKE", "hostname", "host-a")), nil, nil, true},
		{"LIKE one of two attributes of a name", one(byText("LIKE", "zone", "b")), []Attribute{zone, text("zone", "b")}, nil, true},
		{"LIKE a broken expression", one(byText("LIKE", "zone", "a[")), []Attribute{text("zone", "ab")}, nil, false},

		{"UNLIKE", one(byText("UNLIKE", "zone", "b")), []Attribute{zone}, nil, true},
		{"UNLIKE what it has", one(byText("UNLIKE", "zone", "a")), []Attribute{zone}, nil, false},
		{"UNLIKE a set with it", one(bySet("UNLIKE", "zone", "b", "a")), []Attribute{zone}, nil, false},
		{"UNLIKE what is not there", one(byText("UNLIKE", "rack", ".*")), []Attribute{zone}, nil, true},

		{"CLUSTER", one(byText("CLUSTER", "zone", "a")), []Attribute{zone}, nil, true},
		{"CLUSTER takes no pattern", one(byText("CLUSTER", "zone", "*")), []Attribute{zone}, nil, false},
		{"CLUSTER set", one(bySet("CLUSTER", "zone", "a", "b")), []Attribute{zone}, nil, true},
		{"CLUSTER other", one(bySet("CLUSTER", "zone", "c", "b")), []Attribute{zone}, nil, false},
		{"CLUSTER on another type", one(byText("CLUSTER", "cores", "8")), []Attribute{scalar("cores", 8)}, nil, false},
		{"CLUSTER without the attribute", one(byText("CLUSTER", "rack", "r")), nil, nil, false},

		{"GREATER", one(byScalar("GREATER", "cores", 8)), []Attribute{scalar("cores", 8.5)}, nil, true},
		{"GREATER is not equal", one(byScalar("GREATER", "cores", 8)), []Attribute{scalar("cores", 8)}, nil, false},
		{"GREATER on a text", one(byScalar("GREATER", "cores", 8)), []Attribute{text("cores", "9")}, nil, false},
		{"GREATER without the attribute", one(byScalar("GREATER", "cores", 0)), nil, nil, false},

		{"UNIQUE", one(api.ConstraintTerm{Name: "zone", Operate: "UNIQUE"}), []Attribute{zone}, []Live{mine("1", text("zone", "b"))}, true},
		{"UNIQUE taken", one(api.ConstraintTerm{Name: "zone", Operate: "UNIQUE"}), []Attribute{zone}, []Live{mine("1", zone)}, false},
		{"UNIQUE by a set, in any order", one(api.ConstraintTerm{Name: "d", Operate: "UNIQUE"}), []Attribute{set("d", "x", "y")}, []Live{mine("1", set("d", "y", "x"))}, false},
		{"UNIQUE by a range", one(api.ConstraintTerm{Name: "v", Operate: "UNIQUE"}), []Attribute{ranges("v", 1, 2)}, []Live{mine("1", ranges("v", 1, 2))}, false},
		{"UNIQUE of another application", one(api.ConstraintTerm{Name: "zone", Operate: "UNIQUE"}), []Attribute{zone}, []Live{{ID: "1", App: "test/db", Attributes: []Attribute{zone}}}, true},
		{"UNIQUE hostname", one(api.ConstraintTerm{Name: "hostname", Operate: "UNIQUE"}), nil, []Live{{ID: "1", App: "test/web", AgentID: "a", Hostname: "host-a"}}, false},
		{"UNIQUE hostname, elsewhere", one(api.ConstraintTerm{Name: "hostname", Operate: "UNIQUE"}), nil, []Live{mine("1")}, true},
		{"UNIQUE without the attribute", one(api.ConstraintTerm{Name: "rack", Operate: "UNIQUE"}), nil, nil, false},
		{"UNIQUE does not count itself", one(api.ConstraintTerm{Name: "zone", Operate: "UNIQUE"}), []Attribute{zone}, []Live{mine("r", zone)}, true},

		{"MAXPER", one(byText("MAXPER", "zone", "2")), []Attribute{zone}, []Live{mine("1", zone)}, true},
		{"MAXPER reached", one(byText("MAXPER", "zone", "2")), []Attribute{zone}, []Live{mine("1", zone), mine("2", zone)}, false},
		{"MAXPER without the attribute", one(byText("MAXPER", "rack", "2")), nil, nil, false},

		{"GROUPBY first", one(bySet("GROUPBY", "zone", "a", "b")), []Attribute{zone}, nil, true},
		{"GROUPBY evenly", one(bySet("GROUPBY", "zone", "a", "b")), []Attribute{zone}, []Live{mine("1", zone)}, false},
		{"GROUPBY the third may be anywhere", one(bySet("GROUPBY", "zone", "a", "b")), []Attribute{zone}, []Live{mine("1", zone), mine("2", text("zone", "b"))}, true},
		{"GROUPBY counts the living only", one(bySet("GROUPBY", "zone", "a", "b")), []Attribute{zone}, []Live{mine("r", zone)}, true},
		{"GROUPBY outside of the set", one(bySet("GROUPBY", "zone", "b", "c")), []Attribute{zone}, nil, false},
		{"GROUPBY without the attribute", one(bySet("GROUPBY", "rack", "a")), nil, nil, false},

		{"EXCLUDE", one(bySet("EXCLUDE", "label", "tier:db")), nil, []Live{foreign("a", map[string]string{"tier": "db"})}, false},
		{"EXCLUDE another value", one(bySet("EXCLUDE", "label", "tier:db")), nil, []Live{foreign("a", map[string]string{"tier": "web"})}, true},
		{"EXCLUDE on another agent", one(bySet("EXCLUDE", "label", "tier:db")), nil, []Live{foreign("b", map[string]string{"tier": "db"})}, true},
		{"EXCLUDE is not about itself", one(bySet("EXCLUDE", "label", "tier:db")), nil, []Live{{ID: "1", App: "test/web", AgentID: "a", Labels: map[string]string{"tier": "db"}}}, true},

		{"taint", Constraint{}, []Attribute{set("NoSchedule", "gpu=yes")}, nil, false},
		{"taint tolerated", one(byText("TOLERATION", "gpu", "yes")), []Attribute{set("NoSchedule", "gpu=yes")}, nil, true},
		{"taint of another value", one(byText("TOLERATION", "gpu", "no")), []Attribute{set("NoSchedule", "gpu=yes")}, nil, false},
		{"one of two taints tolerated", one(byText("TOLERATION", "gpu", "yes")), []Attribute{set("NoSchedule", "gpu=yes", "old=1")}, nil, false},
		{"both tolerated", one(byText("TOLERATION", "gpu", "yes"), byText("TOLERATION", "old", "1")), []Attribute{set("NoSchedule", "gpu=yes", "old=1")}, nil, true},
		{"TOLERATION asks for nothing", one(byText("TOLERATION", "gpu", "yes")), nil, nil, true},

		{"one of a union", one(byText("CLUSTER", "zone", "b"), byText("CLUSTER", "zone", "a")), []Attribute{zone}, nil, true},
		{"unknown operator", one(byText("NEAR", "zone", "a")), []Attribute{zone}, nil, false},
	}
	for _, c := range cases {
		a := agent("a", 4, 100, c.attrs...)
		s := NewSnapshot([]*Agent{a}, c.live, network.NewLedger())
		r := request("r", 1, 1)
		r.Constraint = c.c
		reason := c.c.check(s, a, r)
		if (reason == nil) != c.fits {
			t.Errorf("%s: %+v, fits should be %v", c.name, reason, c.fits)
		}
		if reason != nil && len(reason.Text) < 10 {
			t.Errorf("%s: explained by %q", c.name, reason.Text)
		}
	}
}

func TestAllItemsMustHold(t *testing.T) {
	t.Parallel()
	a := agent("a", 4, 100, text("zone", "a"), text("rack", "1"))
	s := NewSnapshot([]*Agent{a}, nil, network.NewLedger())
	c := Constraint{api.Constraint{IntersectionItem: []api.ConstraintItem{
		{UnionData: []api.ConstraintTerm{byText("CLUSTER", "zone", "a")}},
		{UnionData: []api.ConstraintTerm{byText("CLUSTER", "rack", "2"), byText("LIKE", "rack", "9")}},
	}}}
	reason := c.check(s, a, request("r", 1, 1))
	if reason == nil || reason.Code != "constraint" || !strings.Contains(reason.Text, "CLUSTER rack 2") || !strings.Contains(reason.Text, "LIKE rack 9") {
		t.Errorf("%+v", reason)
	}
}

// A second taskgroup that is placed in the same round counts for the third.
func TestConstraintSeesWhatWasTaken(t *testing.T) {
	t.Parallel()
	s := NewSnapshot([]*Agent{agent("a", 4, 100), agent("b", 4, 100)}, nil, network.NewLedger())
	var hosts []string
	for _, id := range []string{"1", "2", "3"} {
		r := request(id, 1, 1)
		r.Constraint = one(api.ConstraintTerm{Name: "hostname", Operate: "UNIQUE"})
		d := Place(s, r, network.First)
		if d.Agent == nil {
			hosts = append(hosts, "-")
			continue
		}
		if err := s.Take(r, &d); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, d.Agent.ID)
	}
	if strings.Join(hosts, "") != "ab-" {
		t.Errorf("%v", hosts)
	}
}

func TestAttributeValues(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]Attribute{
		"a": text("x", "a"), "8.5": scalar("x", 8.5), "8": scalar("x", 8), "[1-9]": ranges("x", 1, 9), "{a,b}": set("x", "b", "a"),
	} {
		if got := a.Value(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
