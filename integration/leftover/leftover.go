// Package leftover finds what a run of Tandem left on the machine: processes,
// containers, networks, cgroups, mounts, listening sockets and files. The demo
// and the integration tests take a snapshot before and compare afterwards.
//
// It only looks. It never removes anything: what is left is a defect to be
// shown, not dirt to be swept.
package leftover

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// Snapshot is what can be left behind, each thing as a line for people.
type Snapshot struct {
	things map[string]struct{}
}

// Options says where to look beyond the usual places.
type Options struct {
	// Marks are texts, such as a data directory, that tell a process or a
	// mount to be ours when they stand in its command line, environment,
	// working directory or mount point.
	Marks []string
	// Files are globs of files that must not appear.
	Files []string
	// MarkedOnly leaves out everything without a mark, for runs beside others on
	// the same machine. Network interfaces have no mark and are not looked at.
	MarkedOnly bool
}

// DefaultFiles are the places outside a data directory that Tandem may write to while it runs.
var DefaultFiles = []string{"/run/tandem*", "/run/tandem/*", "/var/lib/tandem*", "/tmp/tandem*", "/var/run/netns/*"}

// Take looks at the machine. A part that cannot be looked at (no Docker Engine) counts as empty.
func Take(ctx context.Context, o Options) Snapshot {
	s := Snapshot{things: map[string]struct{}{}}
	s.processes(o)
	s.engine(ctx, o)
	if !o.MarkedOnly {
		s.links()
	}
	s.cgroups(o)
	s.mounts(o)
	for _, pattern := range append(append([]string{}, DefaultFiles...), o.Files...) {
		matches, _ := filepath.Glob(pattern) // the patterns are ours and well-formed
		for _, m := range matches {
			if o.counts(m) {
				s.add("file %s", m)
			}
		}
	}
	return s
}

// counts tells whether something is looked at that is described by texts.
func (o *Options) counts(texts ...string) bool { return !o.MarkedOnly || o.marked(texts...) }

// marked tells whether a text bears a mark.
func (o *Options) marked(texts ...string) bool {
	for _, mark := range o.Marks {
		for _, text := range texts {
			if strings.Contains(text, mark) {
				return true
			}
		}
	}
	return false
}

// Since returns what this snapshot has and the older one had not, sorted.
func (s Snapshot) Since(before Snapshot) []string {
	var left []string
	for thing := range s.things {
		if _, known := before.things[thing]; !known {
			left = append(left, thing)
		}
	}
	sort.Strings(left)
	return left
}

// Wait looks again and again until nothing is left or the limit has passed,
// because a process that was killed takes a moment to be reaped.
func Wait(ctx context.Context, before Snapshot, o Options, limit time.Duration) []string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left := Take(ctx, o).Since(before)
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-tick.C:
		}
	}
}

func (s Snapshot) add(format string, args ...any) {
	s.things[fmt.Sprintf(format, args...)] = struct{}{}
}

// processes adds every process that bears a mark or is a Tandem binary, but not this one and its ancestors.
func (s Snapshot) processes(o Options) {
	own := map[int]bool{}
	for pid := os.Getpid(); pid > 1; pid = parent(pid) {
		own[pid] = true
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || own[pid] || zombie(pid) {
			continue
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		if len(cmdline) == 0 {
			continue // a kernel thread, or gone meanwhile
		}
		environ, _ := os.ReadFile(dir + "/environ")
		cwd, _ := os.Readlink(dir + "/cwd")
		exe, _ := os.Readlink(dir + "/exe")
		ours := !o.MarkedOnly && strings.HasPrefix(filepath.Base(exe), "tandem")
		if ours || o.marked(string(cmdline), string(environ), cwd) {
			s.add("process %d %s", pid, strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
}

// statFields returns the fields of /proc/pid/stat after the command, which may hold blanks (proc(5)).
func statFields(pid int) []string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	text := string(stat)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

func parent(pid int) int {
	if f := statFields(pid); len(f) > 1 {
		ppid, _ := strconv.Atoi(f[1])
		return ppid
	}
	return 0
}

func zombie(pid int) bool {
	f := statFields(pid)
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

func (s Snapshot) engine(ctx context.Context, o Options) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return
	}
	defer engine.Close()
	containers, err := engine.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return
	}
	for i := range containers {
		c := &containers[i]
		texts := append([]string{c.Image}, c.Names...)
		for _, label := range c.Labels {
			texts = append(texts, label)
		}
		if !o.counts(texts...) {
			continue
		}
		s.add("container %s %s (%s)", c.ID[:12], strings.Join(c.Names, " "), c.Image)
	}
	networks, err := engine.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return
	}
	for i := range networks {
		if !o.counts(networks[i].Name) {
			continue
		}
		s.add("docker network %s", networks[i].Name)
	}
}

func (s Snapshot) links() {
	links, err := net.Interfaces()
	if err != nil {
		return
	}
	for i := range links {
		s.add("network interface %s", links[i].Name)
	}
}

// cgroups adds every cgroup that bears our name, in each mounted hierarchy.
func (s Snapshot) cgroups(o Options) {
	for _, pattern := range []string{"/sys/fs/cgroup/mesos*", "/sys/fs/cgroup/mesos*/*", "/sys/fs/cgroup/*/mesos*", "/sys/fs/cgroup/*/mesos*/*", "/sys/fs/cgroup/tandem*", "/sys/fs/cgroup/*/tandem*", "/sys/fs/cgroup/tandem*/*", "/sys/fs/cgroup/*/tandem*/*", "/sys/fs/cgroup/tandem*/*/*", "/sys/fs/cgroup/*/tandem*/*/*"} {
		matches, _ := filepath.Glob(pattern)
		for _, m := range matches {
			if info, err := os.Stat(m); err == nil && info.IsDir() && o.counts(m) {
				s.add("cgroup %s", m)
			}
		}
	}
}

func (s Snapshot) mounts(o Options) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if o.marked(fields[4]) || (!o.MarkedOnly && strings.Contains(fields[4], "tandem")) {
			s.add("mount %s", fields[4])
		}
	}
}
