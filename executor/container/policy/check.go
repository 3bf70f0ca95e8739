package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tandem/api"
)

// Request is what a container asks for that a policy may forbid.
type Request struct {
	// Image is empty for what the executor itself brings along.
	Image                            string
	Privileged, HostNetwork, HostIPC bool
	// Capabilities are those to be added, as api.Capability returns them.
	Capabilities []string
}

// Check adds an error for all that the policy forbids. Volumes are asked for
// one by one, with HostPath.
func (p *Policy) Check(errs *api.Errors, r Request) {
	if r.Privileged && !p.Privileged {
		errs.Add("container.privileged", true, "%s", p.refusal("privileged containers", "leave privileged out", "privileged: true"))
	}
	if r.HostNetwork && !p.HostNetwork {
		errs.Add("network", "HOST", "%s", p.refusal("the agent's network", "use BRIDGE or a network of its own", "hostNetwork: true"))
	}
	if r.HostIPC && !p.HostIPC {
		errs.Add("container.parameters", "ipc=host", "%s", p.refusal("the agent's IPC namespace", "leave ipc out", "hostIPC: true"))
	}
	for i, name := range r.Capabilities {
		if p.Capabilities != nil && !slices.Contains(p.Capabilities, name) {
			errs.Add(fmt.Sprintf("container.capabilities.add[%d]", i), name, "%s",
				p.refusal("the capability "+name, "leave it out", "capabilities: ["+name+"]"))
		}
	}
	if p.Registries != nil && r.Image != "" && !slices.ContainsFunc(p.Registries, func(prefix string) bool { return below(fullName(r.Image), prefix) }) {
		allowed := "no registry"
		if len(p.Registries) > 0 {
			allowed = strings.Join(p.Registries, ", ")
		}
		errs.Add("container.image", r.Image, "%s", p.refusal("images from elsewhere than "+allowed, "take the image from there", "registries"))
	}
}

// HostPath returns why a volume may not be taken from path, or nil. path is
// absolute and free of symbolic links as far as it exists.
func (p *Policy) HostPath(path string, resolve func(string) string) error {
	for _, forbidden := range p.ForbiddenHostPaths {
		// A mount of the directory above gives access, too.
		if f := resolve(forbidden); below(path, f) || below(f, path) {
			return fmt.Errorf("%s", p.refusal("volumes of "+forbidden, "choose another hostPath, or leave it empty for a directory in the sandbox", "forbiddenHostPaths without it"))
		}
	}
	if p.HostPaths == nil || slices.ContainsFunc(p.HostPaths, func(allowed string) bool { return below(path, resolve(allowed)) }) {
		return nil
	}
	what, remedy := "volumes of any hostPath", "leave hostPath empty for a directory in the sandbox"
	if len(p.HostPaths) > 0 {
		what = "volumes from elsewhere than " + strings.Join(p.HostPaths, ", ")
		remedy = "choose a hostPath there, or leave it empty for a directory in the sandbox"
	}
	return fmt.Errorf("%s", p.refusal(what, remedy, "hostPaths: ["+path+"]"))
}

// Message returns why tasks take no message of a type, or nil.
func (p *Policy) Message(t api.MessageType) error {
	switch {
	case p.Messages != nil && !slices.Contains(p.Messages, string(t)):
		return fmt.Errorf("%s", p.refusal("messages of type "+string(t), "change the artifact and apply it", "messages: ["+strings.Join(append(slices.Clone(p.Messages), string(t)), ", ")+"]"))
	case p.Messages == nil && p.Registries != nil && t == api.MessageCommit:
		return fmt.Errorf("%s", p.refusal("images that are made here (commit), as it says where images come from", "build the image elsewhere", "messages with commit in it"))
	}
	return nil
}

// Session returns why no session may be opened in a container, or nil. loopback
// tells that its connection stays on the machine.
func (p *Policy) Session(loopback bool) error {
	switch {
	case p.Exec == nil && !loopback:
		return fmt.Errorf("%s", p.refusal("sessions (exec, logs of a logPath) over the network, where they are not encrypted", "log in on the agent", "exec: true"))
	case p.Exec != nil && !*p.Exec:
		return fmt.Errorf("%s", p.refusal("sessions (exec, logs of a logPath)", "log in on the agent", "exec: true"))
	}
	return nil
}

// refusal names the policy, the thing and the remedy.
func (p *Policy) refusal(thing, remedy, setting string) string {
	name := p.File
	if name == "" {
		name = "default"
	}
	return fmt.Sprintf("the policy of this agent (%s) forbids %s; %s, or ask the operator for %s", name, thing, remedy, setting)
}

// below tells whether path is prefix or something under it.
func below(path, prefix string) bool {
	return path == prefix || prefix == "/" || strings.HasPrefix(path, prefix+string(filepath.Separator))
}

// fullName is an image's name with its registry, without tag and digest: redis:7
// is docker.io/library/redis. The id of an image has no registry, and no name.
func fullName(image string) string {
	name, _, hasDigest := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	if !hasDigest && strings.HasPrefix(image, "sha256:") {
		return ""
	}
	host, _, slash := strings.Cut(name, "/")
	switch {
	case !slash:
		return "docker.io/library/" + name
	case host == "index.docker.io":
		return "docker.io/" + strings.TrimPrefix(name, "index.docker.io/")
	case strings.ContainsAny(host, ".:") || host == "localhost":
		return name
	}
	return "docker.io/" + name
}
