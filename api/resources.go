package api

// Resources are what a task asks for and what it may not exceed.
type Resources struct {
	// Requests are what is scheduled; each absent one is taken from Limits.
	Requests ResourceList `json:"requests,omitzero"`
	Limits   ResourceList `json:"limits,omitzero"`
	// ExtendedResources come from device plugins.
	ExtendedResources []ExtendedResource `json:"extendedResources,omitempty"`
}

// ResourceList holds amounts as decimal numbers in text.
type ResourceList struct {
	// CPU is in cores.
	CPU Quantity `json:"cpu,omitempty"`
	// Memory is in MiB.
	Memory Quantity `json:"memory,omitempty"`
	// Storage is in MiB.
	Storage Quantity `json:"storage,omitempty"`
}

// ExtendedResource is a countable device.
type ExtendedResource struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Capacity float64 `json:"capacity,omitempty"`
	Socket   string  `json:"socket,omitempty"`
	InnerIP  string  `json:"innerIP,omitempty"`
}

// What a task gets that asks for nothing.
const (
	DefaultCPUs   = 1
	DefaultMemMB  = 64
	DefaultDiskMB = 64
)

// Quantity is a decimal number in text, such as "0.5". Artifacts may write it
// as a number too.
type Quantity string
