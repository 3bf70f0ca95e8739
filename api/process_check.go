package api

import (
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// DefaultWorkPath is the work path of a process that names none.
const DefaultWorkPath = "${work_base_dir}/${namespace}.${processname}.${instanceid}"

func (p *Process) setDefaults() {
	if p.WorkPath == "" {
		p.WorkPath = DefaultWorkPath
	}
	for i := range p.URIs {
		u := &p.URIs[i]
		if u.OutputDir == "" {
			u.OutputDir = "${workPath}"
		}
		if u.PullPolicy == "" {
			u.PullPolicy = PullIfNotPresent
		}
	}
	setPortDefaults(p.Ports)
	setHealthDefaults(p.HealthChecks)
	p.Resources.setDefaults()
}

func (c *checker) process(path string, p *Process, names map[string]bool, groupPorts []string) {
	c.taskName(path, p.Name, names)
	c.lifecycle(path, p.Lifecycle, p.HealthChecks)
	if c.required(joinPath(path, "procName"), p.ProcName) && strings.ContainsAny(p.ProcName, "/\n") {
		c.fail(joinPath(path, "procName"), p.ProcName, "must be the base name of the program, without directories")
	}
	c.attributes(path, p)
	ports := portNames(p.Ports)
	s := processScope(groupPorts)

	// Neither may refer to itself, and workPath, which is settled first, not to pidFile.
	c.processPath(joinPath(path, "workPath"), p.WorkPath, s.without(varWorkPath, varPidFile), false)
	if p.PidFile != "" {
		c.processPath(joinPath(path, "pidFile"), p.PidFile, s.without(varPidFile), true)
	}
	if p.PidFile == "" {
		s = s.without(varPidFile)
	}
	c.uris(joinPath(path, "uris"), p.URIs, s)
	c.account(joinPath(path, "user"), p.User)
	c.required(joinPath(path, "startCmd"), p.StartCmd)
	for _, f := range []struct{ key, value string }{
		{"startCmd", p.StartCmd}, {"stopCmd", p.StopCmd}, {"checkCmd", p.CheckCmd},
		{"restartCmd", p.RestartCmd}, {"reloadCmd", p.ReloadCmd}, {"killCmd", p.KillCmd},
		{"procName", p.ProcName}, {"user", p.User}, {"procGroup", p.ProcGroup}, {"cfgPath", p.CfgPath},
	} {
		if c.text(joinPath(path, f.key), f.value) {
			c.variables(joinPath(path, f.key), f.value, s)
		}
	}
	if p.LogPath != "" {
		c.processPath(joinPath(path, "logPath"), p.LogPath, s, true)
		if _, err := filepath.Match(p.LogPath, ""); err != nil {
			c.fail(joinPath(path, "logPath"), p.LogPath, "is no pattern: %v", err)
		}
	}
	for _, f := range []struct{ key, value, why string }{
		{"checkCmd", p.CheckCmd, "has no effect; write it as a health check of type COMMAND"},
		{"restartCmd", p.RestartCmd, "has no effect: a restart stops the process and runs startCmd in the same directories"},
		{"cfgPath", p.CfgPath, "has no effect; write configmaps or the outputDir of uris"},
		{"procGroup", p.ProcGroup, "has no effect: a process has the groups of its user"},
	} {
		if f.value != "" {
			c.warn(joinPath(path, f.key), "%s", f.why)
		}
	}
	c.seconds(joinPath(path, "startGracePeriod"), int64(p.StartGracePeriod))
	c.seconds(joinPath(path, "startTimeout"), int64(p.StartTimeout))
	if p.StartTimeout > 0 && p.PidFile == "" {
		c.warn(joinPath(path, "startTimeout"), "has no effect without pidFile: the start command is the process itself")
	}
	c.env(joinPath(path, "env"), p.Env, s)
	c.ports(joinPath(path, "ports"), p.Ports)
	c.healthChecks(joinPath(path, "healthChecks"), p.HealthChecks, ports, s)
	c.resources(joinPath(path, "resources"), &p.Resources, false)
	c.configRefs(path, p.ConfigMaps, p.Secrets, func(at, file string) { c.processPath(at, file, s, true) })
	for i := range p.ConfigMaps {
		c.itemUsers(joinPath(indexPath(joinPath(path, "configmaps"), i), "items"), p.ConfigMaps[i].Items, s)
	}
	for i := range p.Secrets {
		c.itemUsers(joinPath(indexPath(joinPath(path, "secrets"), i), "items"), p.Secrets[i].Items, s)
	}
}

func (c *checker) itemUsers(path string, items []DataItem, s scope) {
	for i := range items {
		c.variables(joinPath(indexPath(path, i), "user"), items[i].User, s)
	}
}

// processPath checks a path that may begin with a variable. A relative one
// belongs to the work path, where that makes sense.
func (c *checker) processPath(at, value string, s scope, relative bool) {
	if !c.text(at, value) {
		return
	}
	c.variables(at, value, s)
	c.noParents(at, value)
	if !relative && !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "${work_base_dir}") && !strings.HasPrefix(value, "${run_base_dir}") {
		c.fail(at, value, "must begin with /, ${work_base_dir} or ${run_base_dir}")
	}
}

// namesFile wants an address to end with the name that the content gets, as the process daemon does.
func (c *checker) namesFile(at, value string) {
	plain, _ := replace(value, allOurs, func(string) string { return "x" })
	u, err := url.Parse(plain)
	if err != nil || u.Scheme == "" || u.Scheme != "file" && u.Host == "" {
		return // address says so
	}
	if base := path.Base(u.Path); base == "/" || base == "." || base == ".." {
		c.fail(at, nil, "names no file; end it with the name of the archive or file")
	}
}

func (c *checker) uris(path string, uris []URI, s scope) {
	for i, u := range uris {
		at := indexPath(path, i)
		c.address(joinPath(at, "value"), u.Value, "file", "http", "https")
		c.namesFile(joinPath(at, "value"), u.Value)
		c.variables(joinPath(at, "value"), u.Value, s)
		c.checksum(joinPath(at, "value"), u.Value)
		if u.Mode != "" && !umaskPattern.MatchString(u.Mode) {
			c.fail(joinPath(at, "mode"), u.Mode, `must be an octal number in quotes, such as "0644"`)
		}
		c.processPath(joinPath(at, "outputDir"), u.OutputDir, s, true)
		c.oneOf(joinPath(at, "pullPolicy"), u.PullPolicy, PullAlways, PullIfNotPresent)
		if c.text(joinPath(at, "user"), u.User) {
			c.variables(joinPath(at, "user"), u.User, s)
		}
		if c.text(joinPath(at, "pwd"), u.Pwd) {
			c.variables(joinPath(at, "pwd"), u.Pwd, s)
		}
	}
}

var checksumPattern = regexp.MustCompile(`^(?i:sha256=[0-9a-f]{64}|md5=[0-9a-f]{32})$`)

// checksum checks the fragment of an address, unless a variable is in it. A slip
// in its name would otherwise check nothing.
func (c *checker) checksum(path, value string) {
	_, fragment, has := strings.Cut(value, "#")
	if has && !strings.Contains(fragment, "${") && !checksumPattern.MatchString(fragment) {
		c.fail(path, nil, "the part after # must be a checksum: sha256= and 64, or md5= and 32 hexadecimal digits")
	}
}
