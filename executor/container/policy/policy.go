// Package policy holds what the operator of an agent lets containers do there: a
// small YAML file that the container runtime reads before the first container.
//
// It is a fence against what a task's author may write, not against the root of
// the agent. It must never let through what it did not understand: an unknown
// key, a wrong type or a file that cannot be read refuses every container.
package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tandem/api"
)

// DefaultFile is read when no other file is named; it need not exist.
const DefaultFile = "/etc/tandem/executor.yaml"

// maxFile is far more than any policy needs.
const maxFile = 1 << 20

// Policy is what containers may do. The zero value is stricter than the default.
type Policy struct {
	// File is where it was read; empty for the default.
	File string
	// Privileged, HostNetwork and HostIPC allow what they say.
	Privileged, HostNetwork, HostIPC bool
	// EngineSocket allows a mount that reaches the socket of the container engine,
	// and with it the rule over the agent.
	EngineSocket bool
	// KillWithoutEngine allows signals past an engine that does not answer, straight
	// to the container's processes.
	KillWithoutEngine bool
	// Exec allows sessions in running tasks: commands, and the text of files that a
	// process's logPath names. nil allows them where their
	// connections stay on the machine: they are not encrypted.
	Exec *bool
	// Messages are the types of framework messages that tasks take (api.MessageTypes);
	// nil means all, but commit only where Registries is nil: an image that is made
	// here may have any registry's name.
	Messages []string
	// HostPaths are the directories that volumes may be taken from, with all
	// below them; nil means all. ForbiddenHostPaths are taken out of them.
	HostPaths, ForbiddenHostPaths []string
	// Capabilities may be added; nil means all.
	Capabilities []string
	// Registries are where images may come from: a host, or a host and the
	// beginning of the path; nil means all.
	Registries []string
}

// Default is the policy of an agent without a policy file: everything that
// does not hand over the container engine.
func Default() *Policy {
	return &Policy{Privileged: true, HostNetwork: true, HostIPC: true, KillWithoutEngine: true}
}

// Load reads a policy file. An empty name means DefaultFile, which may be
// missing; then the policy is Default.
func Load(file string) (*Policy, error) {
	name := file
	if name == "" {
		name = DefaultFile
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && file == "" {
		return Default(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("policy: %w; mend the file, or name another with --policy", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w; no container is started until it is mended", name, err)
	}
	p.File = name
	return p, nil
}

// Parse reads the text of a policy file. An absent key leaves the default.
func Parse(text []byte) (*Policy, error) {
	p := Default()
	fields := map[string]any{
		"privileged": &p.Privileged, "hostNetwork": &p.HostNetwork, "hostIPC": &p.HostIPC, "engineSocket": &p.EngineSocket, "exec": &p.Exec,
		"messages": &p.Messages, "killWithoutEngine": &p.KillWithoutEngine,
		"hostPaths": &p.HostPaths, "forbiddenHostPaths": &p.ForbiddenHostPaths, "capabilities": &p.Capabilities, "registries": &p.Registries,
	}
	var root yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&root); errors.Is(err, io.EOF) {
		return p, nil
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document; write one")
	}
	top := root.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return p, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, errors.New("it is no mapping; write lines such as privileged: false")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		field := fields[key.Value]
		switch {
		case field == nil:
			return nil, fmt.Errorf("line %d: key %q is unknown%s", key.Line, key.Value, nearest(key.Value, fields))
		case seen[key.Value]:
			return nil, fmt.Errorf("line %d: key %q is given twice", key.Line, key.Value)
		}
		seen[key.Value] = true
		// null would quietly leave what is forbidden allowed.
		if err := value.Decode(field); err != nil || value.Tag == "!!null" {
			want := "true or false"
			if _, list := field.(*[]string); list {
				want = "a list of texts; [] allows none"
			}
			return nil, fmt.Errorf("line %d: %s must be %s", value.Line, key.Value, want)
		}
	}
	return p, p.settle()
}

// settle checks the lists and brings them into the form in which they are compared.
func (p *Policy) settle() error {
	for _, list := range [][]string{p.HostPaths, p.ForbiddenHostPaths} {
		for i, path := range list {
			if !filepath.IsAbs(path) {
				return fmt.Errorf("%q is no absolute path", path)
			}
			list[i] = filepath.Clean(path)
		}
	}
	for i, name := range p.Capabilities {
		plain, err := api.Capability(name)
		if err != nil {
			return fmt.Errorf("capabilities: %q %w", name, err)
		}
		p.Capabilities[i] = plain
	}
	for _, m := range p.Messages {
		if known := api.MessageTypes(); !slices.Contains(known, m) {
			return fmt.Errorf("messages: %q is no type of a message; known are %s", m, strings.Join(known, ", "))
		}
	}
	for i, r := range p.Registries {
		if r = strings.Trim(r, "/"); r == "" || strings.Contains(r, "//") || strings.ContainsAny(r, "@ \t") {
			return fmt.Errorf("registries: %q is no registry; write it as registry.example.com or docker.io/library", p.Registries[i])
		}
		p.Registries[i] = r
	}
	return nil
}

func nearest(word string, fields map[string]any) string {
	var known []string
	for k := range fields {
		known = append(known, k)
	}
	slices.Sort(known)
	if near := api.Nearest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; known are " + strings.Join(known, ", ")
}
