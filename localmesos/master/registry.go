package master

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
	"tandem/internal/filelock"
	"tandem/localmesos/internal/wire"
)

// registryVersion is the form of the file.
const registryVersion = 1

// How many ids of removed frameworks, and of agents that are unreachable or gone, are kept.
const (
	maxRemovedFrameworks = 1000
	maxLostAgents        = 10_000
)

// registry is what a master must not forget: which agents it has admitted,
// which of them are unreachable, and which frameworks were removed. Every change
// is on disk before the master acts on it.
type registry struct {
	path string // empty: in memory only
	lock *filelock.Lock
	data registryData
	// size of what was written last, in bytes.
	size int
	// lost is the damaged file that was set aside when the registry was opened; empty if there was none.
	lost string
}

type registryData struct {
	Version     int                         `json:"version"`
	Agents      map[string]json.RawMessage  `json:"agents"`
	Unreachable map[string]unreachableAgent `json:"unreachable"`
	// Gone are agents that an operator has given up; they must not come back.
	Gone map[string]unreachableAgent `json:"gone,omitempty"`
	// Weights of roles, as far as they were set.
	Weights map[string]float64 `json:"weights,omitempty"`
	// Removed lists frameworks that were torn down or not back in time, oldest first.
	Removed []string `json:"removed_frameworks"`
}

// unreachableAgent is an agent that did not answer pings.
type unreachableAgent struct {
	Since time.Time `json:"since"`
}

func openRegistry(flags Flags) (*registry, error) {
	r := &registry{data: registryData{Version: registryVersion}}
	if flags.Registry == RegistryLog {
		r.path = filepath.Join(flags.WorkDir, "registry.json")
		if err := r.lockDir(flags.WorkDir); err != nil {
			return nil, err
		}
		err := atomicfile.RemoveTemp(flags.WorkDir)
		if err == nil {
			err = r.read()
		}
		if err != nil {
			r.close()
			return nil, err
		}
	}
	if r.data.Agents == nil {
		r.data.Agents = map[string]json.RawMessage{}
	}
	if r.data.Unreachable == nil {
		r.data.Unreachable = map[string]unreachableAgent{}
	}
	if r.data.Gone == nil {
		r.data.Gone = map[string]unreachableAgent{}
	}
	if r.data.Weights == nil {
		r.data.Weights = map[string]float64{}
	}
	return r, nil
}

// lockDir keeps a second master out of the work directory. The lock goes with the process.
func (r *registry) lockDir(dir string) error {
	lock, err := filelock.Try(filepath.Join(dir, "registry.lock"), 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		lock.Release()
		return fmt.Errorf("mesos master: --work_dir=%q is in use by another master: stop it or choose another directory", dir)
	}
	if err != nil {
		return fmt.Errorf("mesos master: --work_dir=%q cannot be used: %w", dir, err)
	}
	r.lock = lock
	return nil
}

// read takes over what an earlier master wrote. A file that cannot be read as a
// registry is set aside, not removed: a person may still find in it what is gone
// or was removed. One of a later version is not damaged, and is refused.
func (r *registry) read() error {
	b, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mesos master: the registry cannot be read: %w; check its rights", err)
	}
	r.size = len(b)
	var data registryData
	if err = json.Unmarshal(b, &data); err == nil {
		switch v := data.Version; {
		case v == registryVersion:
			r.data = data
			return nil
		case v > registryVersion:
			return fmt.Errorf("mesos master: registry %s: version %d is of a later program: use that, or remove the file to forget all agents", r.path, v)
		}
	}
	r.lost = fmt.Sprintf("%s.damaged-%s", r.path, time.Now().UTC().Format("20060102T150405.000000000"))
	if err := os.Rename(r.path, r.lost); err != nil {
		return fmt.Errorf("mesos master: the damaged registry cannot be set aside: %w", err)
	}
	if err := atomicfile.SyncDir(filepath.Dir(r.path)); err != nil {
		return fmt.Errorf("mesos master: the damaged registry cannot be set aside: %w", err)
	}
	return nil
}

func (r *registry) close() {
	r.lock.Release()
}

func (r *registry) write() error {
	if r.path == "" {
		return nil
	}
	b, err := json.MarshalIndent(r.data, "", " ")
	if err != nil {
		return fmt.Errorf("mesos master: encoding the registry: %w", err)
	}
	if err := failpoint.Inject("mesos-master/registry/write"); err != nil {
		return err
	}
	if err := atomicfile.Write(r.path, append(b, '\n'), 0o600); err != nil {
		return err
	}
	r.size = len(b) + 1
	return failpoint.Inject("mesos-master/registry/written")
}

// agents decodes the admitted agents; an entry that does not decode is left out and named.
func (r *registry) agents() (map[string]mesos.AgentInfo, error) {
	out := map[string]mesos.AgentInfo{}
	var errs []error
	for id, b := range r.data.Agents {
		var info mesos.AgentInfo
		if _, err := wire.UnmarshalJSON(b, &info); err != nil {
			errs = append(errs, fmt.Errorf("agent %s: %w", id, err))
			continue
		}
		out[id] = info
	}
	return out, errors.Join(errs...)
}

// recoverRegistry takes over what an earlier master left.
func (m *Master) recoverRegistry() {
	agents, err := m.registry.agents()
	if err != nil {
		m.blind = true
		m.log.Error("entries of the registry cannot be read and are passed over", "error", err)
	}
	m.recovered = agents
	for id, u := range m.registry.data.Unreachable {
		m.unreachable[id] = u
	}
	if m.registry.lost != "" {
		m.blind = true
		m.log.Error("the registry is damaged and was set aside: agents that come back are taken as they are, also those that were marked gone, and frameworks that were removed may subscribe again; "+
			"nothing is said of unknown tasks before agent_reregister_timeout", "damaged", m.registry.lost, "agent_reregister_timeout", m.flags.AgentReregisterTimeout)
	}
	if len(m.registry.data.Weights) > 0 {
		// What was set while a master ran counts more than the flag, as in Mesos.
		m.weights = maps.Clone(m.registry.data.Weights)
	}
}

// recordFailed logs a change that could not be written. The end of something is
// acted on all the same: at worst the next master learns of it again.
func (m *Master) recordFailed(what string, err error) bool {
	if err == nil {
		return false
	}
	m.log.Error("the registry cannot be written: "+what, "error", err)
	return true
}
