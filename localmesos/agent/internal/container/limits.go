package container

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Limit is one of setrlimit(2).
type Limit struct {
	// Kind is RLIMIT_NOFILE and so on, Name is what people call it.
	Kind int
	Name string
	// Soft and Hard are math.MaxUint64 for no limit.
	Soft, Hard uint64
}

// NoLimit is the value of Soft and Hard without a limit.
const NoLimit uint64 = math.MaxUint64

// setLimits is for a process that waits for Release: it has the agent's rights
// to do so, not those of the process's user.
func (c *Container) setLimits(limits []Limit) error {
	for _, l := range limits {
		if err := unix.Prlimit(c.process.Identity().Pid, l.Kind, &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil); err != nil {
			return fmt.Errorf("setting the limit %s to %d (hard %d): %w", l.Name, l.Soft, l.Hard, err)
		}
	}
	return nil
}
