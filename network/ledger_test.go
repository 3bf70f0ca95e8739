package network

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestLedgerConflictNamesPortHolderAndRemedy(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	if err := l.Reserve("a1", "2.web.test.c1.1700000000", []Claim{{Port: 8080, Protocol: "tcp"}}); err != nil {
		t.Fatal(err)
	}
	err := l.Reserve("a1", "0.db.test.c1.1700000001", []Claim{{Port: 9090, Protocol: "tcp"}, {Port: 8080, Protocol: "tcp", Name: "http"}})
	want := `port "http": hostPort 8080 is already used by test/web-2 on this agent; choose another or use 0 for a random one`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Holder != "2.web.test.c1.1700000000" {
		t.Errorf("conflict %+v", conflict)
	}
	if _, held := l.Holder("a1", 9090, "tcp"); held {
		t.Error("a refused reservation left a port behind")
	}
}

// TestLedgerModel drives the ledger against the plainest model of it.
func TestLedgerModel(t *testing.T) {
	t.Parallel()
	type place struct {
		agent, protocol string
		port            int
	}
	agent := rapid.SampledFrom([]string{"a1", "a2"})
	owner := rapid.SampledFrom([]string{"g1", "g2", "g3"})
	rapid.Check(t, func(t *rapid.T) {
		l, model := NewLedger(), map[place]string{}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				a, o := agent.Draw(t, "agent"), owner.Draw(t, "owner")
				claims := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Claim {
					return Claim{Port: rapid.IntRange(1, 4).Draw(t, "port"), Protocol: rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "protocol")}
				}), 0, 4).Draw(t, "claims")
				free := true
				for _, c := range claims {
					if h := model[place{a, c.Protocol, c.Port}]; h != "" && h != o {
						free = false
					}
				}
				if err := l.Reserve(a, o, claims); (err == nil) != free {
					t.Fatalf("Reserve(%s, %s, %v) = %v", a, o, claims, err)
				}
				for _, c := range claims {
					if free {
						model[place{a, c.Protocol, c.Port}] = o
					}
				}
			},
			"release": func(t *rapid.T) {
				a, o := agent.Draw(t, "agent"), owner.Draw(t, "owner")
				l.Release(a, o)
				for p, h := range model {
					if p.agent == a && h == o {
						delete(model, p)
					}
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for _, a := range []string{"a1", "a2"} {
					for _, c := range l.Held(a) {
						n++
						if model[place{a, c.Protocol, c.Port}] != c.Task {
							t.Fatalf("%s holds %+v, model %v", a, c, model)
						}
					}
				}
				if n != len(model) {
					t.Fatalf("%d held, model has %d", n, len(model))
				}
			},
		})
	})
}
