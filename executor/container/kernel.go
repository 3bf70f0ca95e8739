package container

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tandem/internal/cgroup"
	"tandem/internal/netns"
	"tandem/internal/procid"
)

// What the kernel knows of a container need not be asked of the engine: its first
// process, the addresses of its network, and that it is frozen. A launch is a call
// shorter for it, and a kill works while the engine is silent. Where the groups
// have names of another kind, the engine is asked.

// groups are the control groups of a container, as engines name them with the
// cgroupfs and the systemd driver.
func groups(id string) []string {
	return cgroup.Dirs("docker/"+id, "system.slice/docker-"+id+".scope")
}

// findInit returns a handle on the first process of a container that has just
// been started, or nil: it is the one with the number 1 in a pid namespace that is
// next to ours, see proc_pid_status(5), NSpid.
func findInit(id string) *procid.Process {
	for _, dir := range groups(id) {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		pid, depth := 0, 0
		for field := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(field)
			if err != nil || n <= 0 {
				continue
			}
			if d := depthOfFirst(n); d > 1 && (pid == 0 || d < depth) {
				pid, depth = n, d
			}
		}
		if pid > 0 {
			return openInit(pid, id)
		}
	}
	return nil
}

// depthOfFirst is in how many pid namespaces a process is that is the first of the
// innermost; 0 for any other.
func depthOfFirst(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	if len(numbers) == 0 || numbers[len(numbers)-1] != "1" {
		return 0
	}
	return len(numbers)
}

// addressesIn are those of the network namespace of a process; nil when they
// cannot be seen.
func addressesIn(p *procid.Process) []string {
	ns, err := netns.Open(p)
	if err != nil || ns == nil {
		return nil
	}
	defer ns.Close()
	addrs, err := netns.Addrs(ns)
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

// thaw lets the processes of a paused container go on, so that a signal reaches
// them: one that is frozen in a v1 group does not even die of SIGKILL.
func thaw(id string) {
	for _, dir := range groups(id) {
		for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
			name := filepath.Join(dir, file)
			if _, err := os.Stat(name); err == nil {
				_ = os.WriteFile(name, []byte(value), 0) // whether it helped, the end tells
			}
		}
	}
}
