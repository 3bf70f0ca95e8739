package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
)

// Sockets through which a container would rule the agent: the engine's, which a
// policy may allow, and the process daemon's.
var (
	engineSockets = []string{"/var/run/docker.sock", "/run/containerd/containerd.sock"}
	daemonSocket  = "/run/tandem/processd.sock"
)

// volumes turns the volumes into bind mounts. They are given as mounts, not as
// the older host:container strings, in which a colon in a path changes the meaning.
func (r *Runtime) volumes(errs, forbidden *api.Errors, t *executor.Task, out *compiled) {
	seen := map[string]bool{}
	for i, v := range t.Spec.Container.Volumes {
		path := fmt.Sprintf("container.volumes[%d]", i)
		target := filepath.Clean(v.MountPath)
		switch {
		case !filepath.IsAbs(v.MountPath):
			errs.Add(path+".mountPath", v.MountPath, "must be an absolute path in the container")
			continue
		case target == "/":
			errs.Add(path+".mountPath", v.MountPath, "would hide the whole image; choose a directory below it")
			continue
		case seen[target]:
			errs.Add(path+".mountPath", v.MountPath, "is used by another volume of this container; choose another")
			continue
		}
		seen[target] = true
		source := filepath.Clean(v.HostPath)
		switch {
		case v.HostPath == "":
			source = filepath.Join(t.Sandbox, "volumes", volumeName(v.Name, target))
		case !filepath.IsAbs(v.HostPath):
			errs.Add(path+".hostPath", v.HostPath, "must be an absolute path on the agent, or empty for a directory in the sandbox")
			continue
		default:
			if socket := r.denied(source); socket != "" {
				forbidden.Add(path+".hostPath", v.HostPath, "is refused by the policy of this agent: it gives access to %s, and with it control of the agent; mount a narrower directory", socket)
				continue
			}
			if err := r.opt.Policy.HostPath(resolve(source), resolve); err != nil {
				forbidden.Add(path+".hostPath", v.HostPath, "%s", err)
				continue
			}
		}
		mount := engine.Mount{Type: "bind", Source: source, Target: target, ReadOnly: v.ReadOnly}
		if v.Propagation != "" {
			if !slices.Contains(api.Propagations, v.Propagation) {
				errs.Add(path+".propagation", v.Propagation, "is unknown; use one of %s", strings.Join(api.Propagations, ", "))
			}
			mount.BindOptions = &engine.BindOptions{Propagation: v.Propagation}
		}
		out.dirs = append(out.dirs, source)
		out.spec.HostConfig.Mounts = append(out.spec.HostConfig.Mounts, mount)
	}
}

// denied returns the socket or directory that a mount of path would give access
// to, or "". A mount of the directory above it gives access too, and so does one
// of what is below; being read-only helps against neither.
func (r *Runtime) denied(path string) string {
	path = resolve(path)
	lists := [][]string{r.opt.Deny, {daemonSocket}}
	for _, root := range filesRoots {
		// One that is not there is not used: /dev/shm may be mounted then.
		if _, err := os.Lstat(root); err == nil {
			lists = append(lists, []string{root})
		}
	}
	if !r.opt.Policy.EngineSocket {
		lists = append(lists, []string{r.engine.SocketPath()}, engineSockets)
	}
	for _, list := range lists {
		for _, socket := range list {
			actual := resolve(socket)
			if path == "/" || actual == path || strings.HasPrefix(actual, path+"/") || strings.HasPrefix(path, actual+"/") {
				return socket
			}
		}
	}
	return ""
}

// resolve follows symbolic links in as much of the path as exists.
func resolve(path string) string {
	path = filepath.Clean(path)
	rest := ""
	for p := path; ; p = filepath.Dir(p) {
		if actual, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(actual, rest)
		}
		if p == "/" || p == "." {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// volumeName is a volume's directory in the sandbox: its name, or its mount
// path where it has none, as a single path element.
func volumeName(name, target string) string {
	if name == "" {
		name = strings.TrimPrefix(target, "/")
	}
	name = pathElement(name)
	if strings.Trim(name, ".") == "" {
		return "volume"
	}
	return name
}
