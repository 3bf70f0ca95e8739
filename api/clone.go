package api

import (
	"maps"
	"slices"
)

// clone returns a copy that shares nothing that changes; the content of files,
// which nobody writes to, is shared.
func (t *TaskSpec) clone() *TaskSpec {
	c := *t
	if t.Container != nil {
		k := *t.Container
		k.Command = slices.Clone(k.Command)
		k.Args = slices.Clone(k.Args)
		k.Parameters = slices.Clone(k.Parameters)
		k.Volumes = slices.Clone(k.Volumes)
		k.Capabilities.Add = slices.Clone(k.Capabilities.Add)
		k.Capabilities.Drop = slices.Clone(k.Capabilities.Drop)
		c.Container = &k
	}
	if t.Process != nil {
		p := *t.Process
		p.URIs = slices.Clone(p.URIs)
		c.Process = &p
	}
	c.Ports = slices.Clone(t.Ports)
	c.Env = slices.Clone(t.Env)
	c.Files = slices.Clone(t.Files)
	c.Labels = maps.Clone(t.Labels)
	c.HealthChecks = slices.Clone(t.HealthChecks)
	for i := range c.HealthChecks {
		h := &c.HealthChecks[i]
		if h.Command != nil {
			k := *h.Command
			h.Command = &k
		}
		if h.HTTP != nil {
			k := *h.HTTP
			k.Headers = maps.Clone(k.Headers)
			h.HTTP = &k
		}
		if h.TCP != nil {
			k := *h.TCP
			h.TCP = &k
		}
		if h.GRPC != nil {
			k := *h.GRPC
			h.GRPC = &k
		}
	}
	return &c
}
