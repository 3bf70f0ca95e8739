package processdaemon

import (
	"tandem/processdaemon/protocol"
)

// Stats tells what a task uses now.
func (d *Daemon) Stats(id string) (protocol.Stats, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Stats{}, err
	}
	s := t.status()
	u, err := t.group.Usage()
	if err != nil {
		return protocol.Stats{}, fail(protocol.CodeInternal, "task %q: %v", id, err)
	}
	return protocol.Stats{ID: id, State: s.State, CPUSeconds: u.CPU.Seconds(), MemoryBytes: u.MemoryBytes, Processes: u.Processes, ForksRefused: u.ForksRefused}, nil
}
