package api

import "regexp"

// ProcessUlimits are the names of limits that a process may have: RLIMIT_ names of
// getrlimit(2) in lower case.
var ProcessUlimits = []string{
	"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
	"rttime", "sigpending", "stack",
}

// What a process's newPrivileges may be.
const (
	NewPrivilegesAllow = "allow"
	NewPrivilegesDeny  = "deny"
)

var umaskPattern = regexp.MustCompile(`^[0-7]{1,3}$|^0[0-7]{3}$`)

// attributes checks what a process is given beyond user and directory.
func (c *checker) attributes(path string, p *Process) {
	if p.NewPrivileges != "" {
		c.oneOf(joinPath(path, "newPrivileges"), p.NewPrivileges, NewPrivilegesAllow, NewPrivilegesDeny)
	}
	if p.Umask != "" && !umaskPattern.MatchString(p.Umask) {
		c.fail(joinPath(path, "umask"), p.Umask, `must be an octal number in quotes, such as "027"`)
	}
	within := func(key string, v, least, most int) {
		if v < least || v > most {
			c.fail(joinPath(path, key), v, "must be %d to %d", least, most)
		}
	}
	within("nice", p.Nice, -20, 19)
	within("oomScoreAdj", p.OOMScoreAdj, -1000, 1000)
	if p.PidsLimit < -1 {
		c.fail(joinPath(path, "pidsLimit"), p.PidsLimit, "must be a number of processes, 0 for the agent's default, or -1 for no limit")
	}
	seen := map[string]bool{}
	for i, text := range p.Ulimits {
		at := indexPath(joinPath(path, "ulimits"), i)
		u, err := ParseUlimit(text)
		switch {
		case err != nil:
			c.fail(at, text, "%v", err)
		case seen[u.Name]:
			c.fail(at, text, "%s is there twice", u.Name)
		default:
			c.oneOf(at, u.Name, ProcessUlimits...)
		}
		seen[u.Name] = true
	}
}
