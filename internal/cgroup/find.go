package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"tandem/internal/procid"
)

var known atomic.Pointer[[]*hierarchy]

// mounted are the hierarchies of this machine, read until that has succeeded once: where they
// are mounted does not change.
func mounted() []*hierarchy {
	if mounts := known.Load(); mounts != nil {
		return *mounts
	}
	mounts, err := mountedHierarchies("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	known.Store(&mounts)
	return mounts
}

// Dirs returns the directories of groups that others made: those of these names,
// such as docker/0123, that exist in any hierarchy. It is for looking.
func Dirs(names ...string) []string {
	var out []string
	for _, h := range mounted() {
		for _, name := range names {
			dir := filepath.Join(h.mount, name)
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				out = append(out, dir)
			}
		}
	}
	return out
}

// Holding returns the group of a name, somewhere in this machine's hierarchies, that
// a process is in or below: one that another program of ours made and named so that
// the name alone tells whose it is. nil when the process is in none, or is gone.
func Holding(pid int, name string) *Group {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || name == "" {
		return nil
	}
	mounts := mounted()
	// Those that can kill at once come first.
	for _, h := range slices.Concat(filter(mounts, func(h *hierarchy) bool { return h.v2 }), filter(mounts, func(h *hierarchy) bool { return !h.v2 && h.has("freezer") }),
		filter(mounts, func(h *hierarchy) bool { return !h.v2 && !h.has("freezer") })) {
		for line := range strings.Lines(string(b)) {
			// hierarchy:controllers:path (cgroups(7)); the path may begin above the mount.
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
			if len(f) != 3 || !h.named(f[0], f[1]) {
				continue
			}
			base, _, found := strings.Cut(f[2]+"/", "/"+name+"/")
			for base = strings.Trim(base, "/"); found && base != ""; {
				if st, err := os.Stat(filepath.Join(h.mount, base, name)); err == nil && st.IsDir() {
					return &Group{tree: &Tree{mode: modeOf(h), track: h, base: base}, name: name}
				}
				_, base, found = strings.Cut(base, "/")
			}
		}
	}
	return nil
}

// SessionOf returns what is in the session of a process as a group.
func SessionOf(leader procid.Identity) *Group {
	return &Group{tree: &Tree{mode: ModeSession}, leaders: []procid.Identity{leader}}
}

func modeOf(h *hierarchy) Mode {
	if h.v2 {
		return ModeV2
	}
	return ModeV1
}

func filter(list []*hierarchy, ok func(*hierarchy) bool) []*hierarchy {
	return slices.DeleteFunc(slices.Clone(list), func(h *hierarchy) bool { return !ok(h) })
}
