package master

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/atomicfile"
	"tandem/localmesos/internal/wire"
)

// maxRemovedFrameworks bounds how many ids of removed frameworks are kept.
const maxRemovedFrameworks = 1000

// registry is what a master must not forget: which agents it has admitted,
// which of them are unreachable, and which frameworks were removed. Every change
// is on disk before the master acts on it.
type registry struct {
	path string // empty: in memory only
	lock *os.File
	data registryData
	// size of what was written last, in bytes.
	size int
}

type registryData struct {
	Version     int                         `json:"version"`
	Agents      map[string]json.RawMessage  `json:"agents"`
	Unreachable map[string]unreachableAgent `json:"unreachable"`
	// Removed lists frameworks that were torn down or not back in time, oldest first.
	Removed []string `json:"removed_frameworks"`
}

// unreachableAgent is an agent that did not answer pings.
type unreachableAgent struct {
	Since time.Time `json:"since"`
}

func openRegistry(flags Flags) (*registry, error) {
	r := &registry{data: registryData{Version: 1}}
	if flags.Registry == RegistryLog {
		r.path = filepath.Join(flags.WorkDir, "registry.json")
		if err := r.lockDir(flags.WorkDir); err != nil {
			return nil, err
		}
		if err := r.read(); err != nil {
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
	return r, nil
}

// lockDir keeps a second master out of the work directory. The lock goes with the process.
func (r *registry) lockDir(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "registry.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("mesos master: --work_dir=%q cannot be used: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("mesos master: --work_dir=%q is in use by another master: stop it or choose another directory", dir)
	}
	r.lock = f
	return nil
}

func (r *registry) read() error {
	b, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r.data)
	}
	if err == nil && r.data.Version != 1 {
		err = fmt.Errorf("version %d is not known to this program", r.data.Version)
	}
	if err != nil {
		return fmt.Errorf("mesos master: registry %s: %w; restore it, or remove it to forget all agents", r.path, err)
	}
	return nil
}

func (r *registry) close() {
	if r.lock != nil {
		r.lock.Close()
	}
}

func (r *registry) write() error {
	if r.path == "" {
		return nil
	}
	b, err := json.MarshalIndent(r.data, "", " ")
	if err != nil {
		return fmt.Errorf("mesos master: encoding the registry: %w", err)
	}
	r.size = len(b) + 1
	return atomicfile.Write(r.path, append(b, '\n'), 0o600)
}

// admit records an agent as registered and reachable.
func (r *registry) admit(info mesos.AgentInfo) error {
	b, err := wire.MarshalJSON(&info)
	if err != nil {
		return fmt.Errorf("mesos master: encoding agent %s: %w", info.GetID().Value, err)
	}
	id := info.GetID().Value
	if _, gone := r.data.Unreachable[id]; !gone && string(r.data.Agents[id]) == string(b) {
		return nil
	}
	r.data.Agents[id] = b
	delete(r.data.Unreachable, id)
	return r.write()
}

// lose records agents as unreachable.
func (r *registry) lose(id string, since time.Time) error {
	delete(r.data.Agents, id)
	r.data.Unreachable[id] = unreachableAgent{Since: since}
	return r.write()
}

// forget removes an agent.
func (r *registry) forget(id string) error {
	delete(r.data.Agents, id)
	delete(r.data.Unreachable, id)
	return r.write()
}

// removeFramework records that a framework must not come back.
func (r *registry) removeFramework(id string) error {
	r.data.Removed = append(r.data.Removed, id)
	if n := len(r.data.Removed) - maxRemovedFrameworks; n > 0 {
		r.data.Removed = slices.Delete(r.data.Removed, 0, n)
	}
	return r.write()
}

func (r *registry) isRemoved(id string) bool { return slices.Contains(r.data.Removed, id) }

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
		m.log.Error("entries of the registry cannot be read and are passed over", "error", err)
	}
	m.recovered = agents
	for id, u := range m.registry.data.Unreachable {
		m.unreachable[id] = u
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
