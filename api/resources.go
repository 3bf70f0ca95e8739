package api

import "strconv"

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

// Task returns the resources as a TaskSpec carries them, in numbers. It is
// meant for resources that were given their defaults and validated.
func (r Resources) Task() (requests, limits TaskResources) {
	return r.Requests.task(), r.Limits.task()
}

func (l ResourceList) task() TaskResources {
	return TaskResources{CPUs: l.CPU.value(), MemMB: l.Memory.value(), DiskMB: l.Storage.value()}
}

// setDefaults takes each absent request from the limits, and what is absent
// there too from the defaults. An amount of 0 counts as absent.
func (r *Resources) setDefaults() {
	fill := func(request *Quantity, limit Quantity, fallback int) {
		switch {
		case !request.absent():
		case !limit.absent():
			*request = limit
		default:
			*request = Quantity(strconv.Itoa(fallback))
		}
	}
	fill(&r.Requests.CPU, r.Limits.CPU, DefaultCPUs)
	fill(&r.Requests.Memory, r.Limits.Memory, DefaultMemMB)
	fill(&r.Requests.Storage, r.Limits.Storage, DefaultDiskMB)
}

// absent is true for "" and for 0, but not for what is no number: that is for
// the validation to find.
func (q Quantity) absent() bool {
	f, err := q.Float()
	return err == nil && f == 0
}

// minContainerMemMB is the least that container engines accept as a limit.
const minContainerMemMB = 6

func (c *checker) resources(path string, r *Resources, container bool) {
	c.quantities(joinPath(path, "requests"), r.Requests, r.Limits)
	c.quantities(joinPath(path, "limits"), r.Limits, ResourceList{})
	if m, err := r.Limits.Memory.Float(); container && err == nil && m > 0 && m < minContainerMemMB {
		c.fail(path+".limits.memory", r.Limits.Memory, "is too small: container engines accept %d MiB or more", minContainerMemMB)
	}
	if len(r.ExtendedResources) > 0 {
		c.warn(joinPath(path, "extendedResources"), "has no effect: no device plugins are asked")
	}
	for i, x := range r.ExtendedResources {
		if x.Name == "" {
			c.fail(joinPath(indexPath(joinPath(path, "extendedResources"), i), "name"), nil, "is required")
		}
		if x.Value < 0 {
			c.fail(joinPath(indexPath(joinPath(path, "extendedResources"), i), "value"), x.Value, "must not be negative")
		}
	}
}

// quantities checks the amounts of l, and that none exceeds its limit.
func (c *checker) quantities(path string, l, limits ResourceList) {
	check := func(key string, q, limit Quantity) {
		f, err := q.Float()
		if err != nil {
			c.fail(joinPath(path, key), nil, "%s", err)
			return
		}
		if most, err := limit.Float(); err == nil && most > 0 && f > most {
			c.fail(joinPath(path, key), q, "is more than the limit of %s; raise the limit or lower the request", limit)
		}
	}
	check("cpu", l.CPU, limits.CPU)
	check("memory", l.Memory, limits.Memory)
	check("storage", l.Storage, limits.Storage)
}
