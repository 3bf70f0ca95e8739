package container

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/journal"
	"tandem/internal/procid"
)

// cpusetPatience bounds the wait for other executors that lease CPUs. Each of
// them holds the lock for one write to the disk.
const cpusetPatience = 30 * time.Second

// cpusetLock is the name of their lock, whose time tells of the latest change.
const cpusetLock = "cpuset"

// record writes the task's journal record. A container that wants CPUs for
// itself gets them here: its lease is part of the record, so that it is as
// durable and ends when the container is known to be gone, by whoever removes it.
func (r *Runtime) record(ctx context.Context, t *task, c *compiled) error {
	rec := Record{Name: t.name, Image: t.image, Files: t.files}
	if c.cpus == 0 {
		if set, leased := r.sharedCPUs(); leased {
			c.spec.HostConfig.CpusetCpus = set
		}
		return r.opt.Journal.Put(Kind, t.id, rec)
	}
	ctx, cancel := context.WithTimeout(ctx, cpusetPatience)
	defer cancel()
	return r.opt.Journal.Exclusive(ctx, cpusetLock, func(time.Time) error {
		all, err := r.opt.Journal.All()
		if err != nil {
			return err
		}
		usable, err := r.usable()
		if err != nil {
			return err
		}
		boot, err := procid.BootID()
		if err != nil {
			return err
		}
		free := freeCPUs(usable, all, boot, r.opt.Journal.Name(), t.id)
		if len(free) < c.cpus {
			return fmt.Errorf("cpuset: task %q needs %d CPUs for itself, of the %d of this agent %d are free; lower requests.cpu, or leave cpuset out to share CPUs",
				t.id, c.cpus, len(usable), len(free))
		}
		rec.CPUs = free[:c.cpus]
		c.spec.HostConfig.CpusetCpus = joinCPUs(rec.CPUs)
		return r.opt.Journal.Put(Kind, t.id, rec)
	})
}

// freeCPUs are the usable ones that no record leases, in order. Those of dead
// executors count as leased until their containers are gone; of those from before a
// reboot nothing runs.
func freeCPUs(usable []int, all []journal.Record, boot, owner, taskID string) []int {
	leased := map[int]bool{}
	for _, rec := range all {
		var data Record
		if rec.Kind != Kind || rec.BootID != boot || rec.Owner == owner && rec.ID == taskID || json.Unmarshal(rec.Data, &data) != nil {
			continue
		}
		for _, cpu := range data.CPUs {
			leased[cpu] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(usable), func(cpu int) bool { return leased[cpu] })
}

// usable are the CPUs that containers may run on.
func (r *Runtime) usable() ([]int, error) {
	if r.opt.CPUs != nil {
		return r.opt.CPUs, nil
	}
	return usableCPUs()
}

// usableCPUs are those that the executor itself may run on, see sched_getaffinity(2).
func usableCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("cpuset: ask for the CPUs of this agent: %w", err)
	}
	var cpus []int
	for i := 0; len(cpus) < set.Count(); i++ {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// wholeCPUs is how many CPUs a container with a cpuset asks for.
func wholeCPUs(cpus float64) (int, bool) {
	return int(cpus), cpus >= 1 && cpus <= 1<<20 && cpus == math.Trunc(cpus)
}

// joinCPUs writes them as cpuset(7) has them: 0,2,3.
func joinCPUs(cpus []int) string {
	text := make([]string, len(cpus))
	for i, cpu := range cpus {
		text[i] = strconv.Itoa(cpu)
	}
	return strings.Join(text, ",")
}
