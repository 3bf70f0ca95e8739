package api

import (
	"strings"
)

func (k *Container) setDefaults() {
	if k.ImagePullPolicy == "" {
		k.ImagePullPolicy = PullIfNotPresent
	}
	setPortDefaults(k.Ports)
	setHealthDefaults(k.HealthChecks)
	k.Resources.setDefaults()
}

func (c *checker) container(path string, k *Container, networkMode string, names map[string]bool, groupPorts []string) {
	c.taskName(path, k.Name, names)
	c.lifecycle(path, k.Lifecycle, k.HealthChecks)
	switch {
	case k.Image == "":
		c.fail(joinPath(path, "image"), nil, "is required, for example redis:7")
	case !isImage(k.Image):
		c.fail(joinPath(path, "image"), k.Image, "is not the name of an image, such as registry.example.com/group/name:tag")
	}
	c.oneOf(joinPath(path, "imagePullPolicy"), k.ImagePullPolicy, PullAlways, PullIfNotPresent, PullNever)
	c.credential(joinPath(path, "imagePullUser"), k.ImagePullUser)
	c.credential(joinPath(path, "imagePullPasswd"), k.ImagePullPasswd)
	if k.Hostname != "" && networkMode != NetworkHost {
		c.label(joinPath(path, "hostname"), k.Hostname)
	}
	if k.WorkingDir != "" {
		c.absolute(joinPath(path, "workingDir"), k.WorkingDir)
	}
	if err := CheckContainerUser(k.User); err != nil {
		c.fail(joinPath(path, "user"), k.User, "%s", err)
	}
	c.notNegative(joinPath(path, "pidsLimit"), k.PidsLimit)
	c.capabilities(joinPath(path, "capabilities"), k)
	if cpus, err := k.Resources.Requests.CPU.Float(); k.Cpuset && err == nil && !isWhole(cpus) {
		c.fail(joinPath(path, "resources")+".requests.cpu", k.Resources.Requests.CPU, "must be a whole number of CPUs, 1 or more, when cpuset is true")
	}
	ports := portNames(k.Ports)
	scope := containerScope(groupPorts)
	c.variables(joinPath(path, "command"), k.Command, scope)
	c.variables(joinPath(path, "workingDir"), k.WorkingDir, scope)
	for i, a := range k.Args {
		c.variables(indexPath(joinPath(path, "args"), i), a, scope)
	}
	for i, p := range k.Parameters {
		c.parameter(indexPath(joinPath(path, "parameters"), i), p)
	}
	c.env(joinPath(path, "env"), k.Env, scope)
	c.ports(joinPath(path, "ports"), k.Ports)
	c.healthChecks(joinPath(path, "healthChecks"), k.HealthChecks, ports, scope)
	c.resources(joinPath(path, "resources"), &k.Resources, true)
	c.volumes(joinPath(path, "volumes"), k.Volumes, scope)
	c.configRefs(path, k.ConfigMaps, k.Secrets, func(at, file string) {
		c.absolute(at, file)
		c.variables(at, file, scope)
	})
}

// secretPrefix begins a credential that is kept in a secret: secret::<name>||<key>.
const secretPrefix = "secret::"

// ParseSecretRef reads a registry credential of the form
// secret::<secretName>||<dataKey>; ok is false for a literal one.
func ParseSecretRef(credential string) (name, key string, ok bool) {
	rest, ok := strings.CutPrefix(credential, secretPrefix)
	if !ok {
		return "", "", false
	}
	name, key, ok = strings.Cut(rest, "||")
	return name, key, ok && name != "" && key != ""
}

func (c *checker) credential(path, value string) {
	if strings.HasPrefix(value, secretPrefix) {
		if _, _, ok := ParseSecretRef(value); !ok {
			c.fail(path, nil, "must be secret::<secretName>||<dataKey>")
		}
	}
	c.text(path, value)
}

func (c *checker) volumes(path string, volumes []Volume, s scope) {
	mounts := map[string]bool{}
	for i, v := range volumes {
		at := indexPath(path, i) + ".volume"
		if v.Volume.MountPath == "" {
			c.fail(joinPath(at, "mountPath"), nil, "is required")
		} else {
			c.absolute(joinPath(at, "mountPath"), v.Volume.MountPath)
			c.variables(joinPath(at, "mountPath"), v.Volume.MountPath, s)
			if mounts[v.Volume.MountPath] {
				c.fail(joinPath(at, "mountPath"), v.Volume.MountPath, "another volume is mounted there; choose another path")
			}
			mounts[v.Volume.MountPath] = true
		}
		if strings.Contains(v.Volume.MountPath, ":") || strings.Contains(v.Volume.HostPath, ":") {
			c.fail(at, nil, "paths of volumes must not contain ':'")
		}
		if v.Volume.HostPath != "" {
			c.absolute(joinPath(at, "hostPath"), v.Volume.HostPath)
			c.variables(joinPath(at, "hostPath"), v.Volume.HostPath, s)
		}
		if v.Volume.Propagation != "" {
			c.oneOf(joinPath(at, "propagation"), v.Volume.Propagation, Propagations...)
		}
		if v.Volume.SubPath != "" {
			c.warn(joinPath(at, "subPath"), "has no effect; write it at the end of hostPath")
		}
	}
}

// configRefs checks what a task takes from configmaps and secrets; file checks
// a path in the way of the task's kind.
func (c *checker) configRefs(path string, configs []ConfigRef, secrets []SecretRef, file func(at, path string)) {
	for i, r := range configs {
		at := indexPath(joinPath(path, "configmaps"), i)
		c.label(joinPath(at, "name"), r.Name)
		c.dataItems(joinPath(at, "items"), r.Items, file)
	}
	for i, r := range secrets {
		at := indexPath(joinPath(path, "secrets"), i)
		c.label(joinPath(at, "secretName"), r.SecretName)
		c.dataItems(joinPath(at, "items"), r.Items, file)
	}
}

func (c *checker) dataItems(path string, items []DataItem, file func(at, path string)) {
	for i, item := range items {
		at := indexPath(path, i)
		c.required(joinPath(at, "dataKey"), item.DataKey)
		known := c.oneOf(joinPath(at, "type"), item.Type, DataEnv, DataFile)
		target := joinPath(at, "keyOrPath")
		if !c.required(target, item.KeyOrPath) || !known {
			continue
		}
		if item.Type == DataEnv {
			c.envName(target, item.KeyOrPath)
		} else {
			file(target, item.KeyOrPath)
		}
		c.account(joinPath(at, "user"), item.User)
		if item.SubPath != "" {
			c.warn(joinPath(at, "subPath"), "has no effect")
		}
	}
}

// account refuses what cannot be the name or number of a user.
func (c *checker) account(path, user string) {
	if strings.ContainsAny(user, ":/ \t\r\n\x00") || strings.HasPrefix(user, "-") || len(user) > 64 {
		c.fail(path, user, "is not the name of a user")
	}
}
