package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mountedHierarchies reads the cgroup mounts from a mountinfo file
// (proc_pid_mountinfo(5)).
func mountedHierarchies(mountinfo string) ([]*hierarchy, error) {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return parseMountinfo(string(b), func(mount string) []string {
		b, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
		if err != nil {
			return nil
		}
		return strings.Fields(string(b))
	}), nil
}

func parseMountinfo(text string, v2controllers func(mount string) []string) []*hierarchy {
	var out []*hierarchy
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		lf, rf := strings.Fields(left), strings.Fields(right)
		if !ok || len(lf) < 6 || len(rf) < 3 {
			continue
		}
		mount := unescape(lf[4])
		switch rf[0] {
		case "cgroup2":
			out = append(out, &hierarchy{mount: mount, v2: true, controllers: v2controllers(mount)})
		case "cgroup":
			h := &hierarchy{mount: mount}
			for opt := range strings.SplitSeq(rf[2], ",") {
				// The rest of the super options (rw, xattr, release_agent) names no controller.
				switch opt {
				case "cpu", "memory", "pids", "freezer", "name=systemd":
					h.controllers = append(h.controllers, opt)
				}
			}
			if len(h.controllers) > 0 {
				out = append(out, h)
			}
		}
	}
	return out
}

// unescape undoes the octal escapes of blanks in mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
