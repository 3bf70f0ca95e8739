package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/atomicfile"
	"tandem/internal/procid"
	"tandem/localmesos/internal/wire"
)

// Run names one run of an executor: where its sandbox and its checkpoints are.
type Run struct{ Agent, Framework, Executor, Container string }

func (r Run) below(root string) string {
	return filepath.Join(root, "slaves", r.Agent, "frameworks", r.Framework, "executors", r.Executor, "runs", r.Container)
}

// Sandbox is the run's sandbox directory.
func (s *Store) Sandbox(r Run) string { return r.below(s.work) }

// SandboxLatest is the link to the executor's last run.
func (s *Store) SandboxLatest(r Run) string {
	return filepath.Join(filepath.Dir(r.below(s.work)), "latest")
}

// Sandboxes lists all sandboxes that there are, of earlier agents, too, and the
// records of those: everything that an agent may have to remove one day.
func (s *Store) Sandboxes(agent string) []string {
	out, _ := filepath.Glob(filepath.Join(s.work, "slaves", "*", "frameworks", "*", "executors", "*", "runs", "*"))
	out = slices.DeleteFunc(out, func(p string) bool { return filepath.Base(p) == "latest" })
	old, _ := filepath.Glob(filepath.Join(s.meta(), "slaves", "*"))
	for _, p := range old {
		if name := filepath.Base(p); name != "latest" && name != agent && !strings.HasPrefix(name, atomicfile.TempPrefix) {
			out = append(out, p)
		}
	}
	return out
}

// RemoveEmpty removes the directories around a sandbox that was removed, as far
// as nothing else is in them.
func (s *Store) RemoveEmpty(sandbox string) {
	runs := filepath.Dir(sandbox)
	latest := filepath.Join(runs, "latest")
	if to, err := os.Readlink(latest); err == nil && filepath.Base(to) == filepath.Base(sandbox) {
		os.Remove(latest)
	}
	top := filepath.Join(s.work, "slaves")
	for dir := runs; strings.HasPrefix(dir, top+"/"); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // it fails for one that is not empty
			return
		}
	}
}

func (s *Store) meta() string                 { return filepath.Join(s.work, "meta") }
func (s *Store) agentDir(agent string) string { return filepath.Join(s.meta(), "slaves", agent) }
func (s *Store) latest() string               { return filepath.Join(s.meta(), "slaves", "latest") }

func (s *Store) frameworkDir(agent, framework string) string {
	return filepath.Join(s.agentDir(agent), "frameworks", framework)
}

func (s *Store) executorDir(r Run) string {
	return filepath.Join(s.frameworkDir(r.Agent, r.Framework), "executors", r.Executor)
}

// TaskLog is the log of a run's tasks and their updates; see package updates.
func (s *Store) TaskLog(r Run) string { return filepath.Join(r.below(s.meta()), "tasks.log") }

// MakeRun makes the directory of a run's log.
func (s *Store) MakeRun(r Run) error { return atomicfile.MkdirAll(r.below(s.meta()), 0o700) }

// SaveAgent records who this agent is, and that it is the latest.
func (s *Store) SaveAgent(info *mesos.AgentInfo) error {
	id := info.GetID().GetValue()
	if err := CheckID("agent", id); err != nil {
		return err
	}
	if err := s.writeMessage(filepath.Join(s.agentDir(id), "slave.info"), info); err != nil {
		return err
	}
	temp := filepath.Join(s.meta(), "slaves", atomicfile.TempPrefix+"latest")
	os.Remove(temp)
	if err := os.Symlink(id, temp); err != nil {
		return fmt.Errorf("recording the agent: %w", err)
	}
	if err := os.Rename(temp, s.latest()); err != nil {
		return fmt.Errorf("recording the agent: %w", err)
	}
	return atomicfile.SyncDir(filepath.Dir(s.latest()))
}

// Agent returns who the agent was, or ErrMissing.
func (s *Store) Agent() (*mesos.AgentInfo, error) {
	id, err := os.Readlink(s.latest())
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("reading who the agent was: %w", err)
	}
	if err := CheckID("agent", id); err != nil {
		return nil, s.setAside(s.latest(), err.Error())
	}
	info := &mesos.AgentInfo{}
	if err := s.readMessage(filepath.Join(s.agentDir(id), "slave.info"), info); err != nil {
		return nil, err
	}
	if info.GetID().GetValue() != id {
		return nil, s.setAside(filepath.Join(s.agentDir(id), "slave.info"), "it names another agent")
	}
	return info, nil
}

// ForgetAgent makes the next start that of a new agent.
func (s *Store) ForgetAgent() error { return atomicfile.Remove(s.latest()) }

// SaveBootID records the boot that everything saved later belongs to.
func (s *Store) SaveBootID(id string) error {
	return s.write(filepath.Join(s.meta(), "boot_id"), []byte(id))
}

// BootID returns the recorded boot, or ErrMissing.
func (s *Store) BootID() (string, error) {
	b, err := s.read(filepath.Join(s.meta(), "boot_id"))
	return string(b), err
}

// SaveFramework records a framework.
func (s *Store) SaveFramework(agent string, info *mesos.FrameworkInfo) error {
	return s.writeMessage(filepath.Join(s.frameworkDir(agent, info.GetID().GetValue()), "framework.info"), info)
}

// Framework returns a recorded framework.
func (s *Store) Framework(agent, id string) (*mesos.FrameworkInfo, error) {
	info := &mesos.FrameworkInfo{}
	if err := s.readMessage(filepath.Join(s.frameworkDir(agent, id), "framework.info"), info); err != nil {
		return nil, err
	}
	return info, nil
}

// Frameworks lists the recorded frameworks' ids.
func (s *Store) Frameworks(agent string) ([]string, error) {
	return list(filepath.Join(s.agentDir(agent), "frameworks"), false)
}

// RemoveFramework forgets a framework and all below it.
func (s *Store) RemoveFramework(agent, id string) error {
	return s.remove(s.frameworkDir(agent, id), "framework.info")
}

// RemoveFrameworks forgets all frameworks of an agent.
func (s *Store) RemoveFrameworks(agent string) error {
	ids, err := s.Frameworks(agent)
	for _, id := range ids {
		err = errors.Join(err, s.RemoveFramework(agent, id))
	}
	return err
}

// Executor is what is recorded of an executor.
type Executor struct {
	Info      *mesos.ExecutorInfo
	Container string
	// Generated tells that the master made it for a command task.
	Generated bool
	// Subscribed tells that it has subscribed once.
	Subscribed bool
}

type executorJSON struct {
	Info       json.RawMessage `json:"info"`
	Container  string          `json:"container"`
	Generated  bool            `json:"generated,omitempty"`
	Subscribed bool            `json:"subscribed,omitempty"`
}

// SaveExecutor records an executor.
func (s *Store) SaveExecutor(r Run, e Executor) error {
	info, err := wire.MarshalJSON(e.Info)
	if err != nil {
		return err
	}
	return s.writeJSON(filepath.Join(s.executorDir(r), "executor.info"),
		executorJSON{Info: info, Container: e.Container, Generated: e.Generated, Subscribed: e.Subscribed})
}

// Executors lists the recorded executors' ids.
func (s *Store) Executors(agent, framework string) ([]string, error) {
	return list(filepath.Join(s.frameworkDir(agent, framework), "executors"), false)
}

// Executor returns a recorded executor.
func (s *Store) Executor(agent, framework, id string) (Executor, error) {
	path := filepath.Join(s.executorDir(Run{Agent: agent, Framework: framework, Executor: id}), "executor.info")
	var j executorJSON
	if err := s.readJSON(path, &j); err != nil {
		return Executor{}, err
	}
	e := Executor{Info: &mesos.ExecutorInfo{}, Container: j.Container, Generated: j.Generated, Subscribed: j.Subscribed}
	if _, err := wire.UnmarshalJSON(j.Info, e.Info); err != nil {
		return Executor{}, s.setAside(path, err.Error())
	}
	if err := CheckID("container", e.Container); err != nil {
		return Executor{}, s.setAside(path, err.Error())
	}
	return e, nil
}

// RemoveExecutor forgets an executor and its tasks.
func (s *Store) RemoveExecutor(r Run) error { return s.remove(s.executorDir(r), "executor.info") }

// Container is a container that may be alive, of whatever framework. It is
// recorded before anything is started, without a process then.
type Container struct {
	Run     Run             `json:"run"`
	Process procid.Identity `json:"process"`
	Cgroup  string          `json:"cgroup,omitempty"`
}

func (s *Store) containerFile(id string) string {
	return filepath.Join(s.meta(), "containers", id)
}

// SaveContainer records a container.
func (s *Store) SaveContainer(c Container) error {
	return s.writeJSON(s.containerFile(c.Run.Container), c)
}

// RemoveContainer forgets a container that is gone.
func (s *Store) RemoveContainer(id string) error { return atomicfile.Remove(s.containerFile(id)) }

// Containers returns all recorded containers.
func (s *Store) Containers() ([]Container, error) {
	ids, err := list(filepath.Join(s.meta(), "containers"), true)
	if err != nil {
		return nil, err
	}
	var out []Container
	for _, id := range ids {
		var c Container
		switch err := s.readJSON(s.containerFile(id), &c); {
		case errors.Is(err, ErrMissing):
		case err != nil:
			return nil, err
		case c.Run.Container != id || strings.ContainsRune(c.Run.Container, '/'):
			if err := s.setAside(s.containerFile(id), "it names another container"); !errors.Is(err, ErrMissing) {
				return nil, err
			}
		default:
			out = append(out, c)
		}
	}
	return out, nil
}
