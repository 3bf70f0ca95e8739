package api

import (
	"strconv"
	"strings"
)

// EnvVar is one variable of a task's environment.
type EnvVar struct {
	Name string `json:"name"`
	// Value may be confidential, so errors never show it.
	Value     string     `json:"value,omitempty" secret:"true"`
	ValueFrom *EnvSource `json:"valueFrom,omitempty"`
}

// EnvSource takes a variable's value from elsewhere.
type EnvSource struct {
	ResourceFieldRef *ResourceFieldRef `json:"resourceFieldRef,omitempty"`
}

// ResourceFieldRef names one of the task's resources.
type ResourceFieldRef struct {
	// Resource is requests.cpu, requests.memory, limits.cpu or limits.memory.
	Resource string `json:"resource"`
}

// resourceFields are the values of ResourceFieldRef.Resource.
var resourceFields = []string{"requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}

// TaskEnv returns variables as a TaskSpec carries them: references to resources
// are replaced by their amounts, CPU in thousandths of a core and memory in
// MiB, both with six decimals; everything else still holds its variables.
func TaskEnv(env []EnvVar, r Resources) []TaskEnvVar {
	out := make([]TaskEnvVar, 0, len(env))
	for _, e := range env {
		v := TaskEnvVar{Name: e.Name, Value: e.Value}
		if e.ValueFrom != nil && e.ValueFrom.ResourceFieldRef != nil {
			v.Value = resourceText(e.ValueFrom.ResourceFieldRef.Resource, r)
			v.Literal = true
		}
		out = append(out, v)
	}
	return out
}

func resourceText(name string, r Resources) string {
	var amount float64
	switch name {
	case "requests.cpu":
		amount = 1000 * r.Requests.CPU.value()
	case "requests.memory":
		amount = r.Requests.Memory.value()
	case "limits.cpu":
		amount = 1000 * r.Limits.CPU.value()
	case "limits.memory":
		amount = r.Limits.Memory.value()
	}
	return strconv.FormatFloat(amount, 'f', 6, 64)
}

func (c *checker) env(path string, env []EnvVar, s scope) {
	c.most(path, len(env), maxEnv, "variables")
	for i, e := range env {
		at := indexPath(path, i)
		if c.required(joinPath(at, "name"), e.Name) {
			c.envName(joinPath(at, "name"), e.Name)
			c.variables(joinPath(at, "name"), e.Name, s)
		}
		if c.text(joinPath(at, "value"), e.Value) {
			c.variables(joinPath(at, "value"), e.Value, s)
		}
		if e.ValueFrom == nil {
			continue
		}
		switch {
		case e.Value != "":
			c.fail(joinPath(at, "valueFrom"), nil, "cannot go together with value; remove one of the two")
		case e.ValueFrom.ResourceFieldRef == nil:
			c.fail(joinPath(at, "valueFrom"), nil, "needs resourceFieldRef, the only source there is")
		default:
			c.oneOf(at+".valueFrom.resourceFieldRef.resource", e.ValueFrom.ResourceFieldRef.Resource, resourceFields...)
		}
	}
}

func (c *checker) envName(path, name string) {
	if strings.ContainsAny(name, "=\x00") {
		c.fail(path, name, "the name of a variable must not contain '='")
	}
}
