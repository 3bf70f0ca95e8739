package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"golang.org/x/sys/unix"

	"tandem/localmesos/internal/resource"
)

// defaultPorts are offered unless the flag names other ones.
const defaultPorts = "ports:[31000-32000]"

// describe makes the agent's info, but for its id and port.
func describe(f Flags) (mesos.AgentInfo, error) {
	name, err := hostname(f)
	if err != nil {
		return mesos.AgentInfo{}, err
	}
	given, err := resource.Parse(f.Resources, f.DefaultRole)
	if err != nil {
		return mesos.AgentInfo{}, fmt.Errorf("resources: %w", err)
	}
	attributes, err := resource.ParseAttributes(f.Attributes)
	if err != nil {
		return mesos.AgentInfo{}, fmt.Errorf("attributes: %w", err)
	}
	resources, err := complete(given, f)
	if err != nil {
		return mesos.AgentInfo{}, err
	}
	return mesos.AgentInfo{Hostname: name, Resources: resources, Attributes: attributes}, nil
}

// complete adds what the flag does not name, as Apache Mesos detects it. The
// order is cpus, mem, disk, ports, then the rest.
func complete(given resource.List, f Flags) (resource.List, error) {
	var out resource.List
	for _, name := range []string{"cpus", "mem", "disk", "ports"} {
		if strings.Contains(f.Resources, name) || hasName(given, name) {
			for _, r := range given {
				if r.Name == name {
					out = out.Add(r)
				}
			}
			continue
		}
		text, err := detect(name, f.WorkDir)
		if err != nil {
			return nil, err
		}
		found, err := resource.Parse(text, f.DefaultRole)
		if err != nil {
			return nil, err
		}
		out = out.Add(found...)
	}
	for _, r := range given {
		if !slices.Contains([]string{"cpus", "mem", "disk", "ports"}, r.Name) {
			out = out.Add(r)
		}
	}
	return out, nil
}

func hasName(l resource.List, name string) bool {
	return slices.ContainsFunc(l, func(r mesos.Resource) bool { return r.Name == name })
}

// detect finds a resource of the machine. The margins are those of Apache
// Mesos: a gigabyte of memory and five of disk are left to the system, or half
// if there is not much more.
func detect(name, workDir string) (string, error) {
	const mega, memMargin, diskMargin = 1 << 20, 1024, 5 * 1024
	left := func(total, margin uint64) uint64 {
		if total > 2*margin {
			return total - margin
		}
		return total / 2
	}
	switch name {
	case "cpus":
		return fmt.Sprintf("cpus:%d", runtime.NumCPU()), nil
	case "mem":
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return "", fmt.Errorf("finding the machine's memory: %w; give mem in --resources", err)
		}
		return fmt.Sprintf("mem:%d", left(info.Totalram*uint64(info.Unit)/mega, memMargin)), nil
	case "disk":
		size, err := diskSize(workDir)
		if err != nil {
			return "", fmt.Errorf("finding the size of the disk: %w; give disk in --resources", err)
		}
		return fmt.Sprintf("disk:%d", left(size/mega, diskMargin)), nil
	}
	return defaultPorts, nil
}

// diskSize is the size of the file system that the directory is on, or will be.
func parentOf(dir string) string { return filepath.Dir(dir) }

func diskSize(dir string) (uint64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil {
			return st.Blocks * uint64(st.Bsize), nil
		}
		up := parentOf(dir)
		if !errors.Is(err, unix.ENOENT) || up == dir {
			return 0, err
		}
		dir = up
	}
}
