package api

// EnvVar is one variable of a task's environment.
type EnvVar struct {
	Name      string     `json:"name"`
	Value     string     `json:"value,omitempty"`
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
