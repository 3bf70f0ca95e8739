package processdaemon

import (
	"fmt"
	"strconv"

	"tandem/internal/procattr"
	"tandem/processdaemon/protocol"
)

// attrsOf returns what a specification asks for beyond user, directory and
// environment. The caller closes NetNS when there is one.
func attrsOf(s *protocol.Spec, as *account) (procattr.Attrs, error) {
	a := procattr.Attrs{NoNewPrivs: s.NewPrivileges == protocol.NewPrivilegesDeny || s.NewPrivileges == "" && as.uid != 0}
	if s.Umask != "" {
		mask, err := parseUmask(s.Umask)
		if err != nil {
			return a, err
		}
		a.Umask = &mask
	}
	if s.Nice != 0 {
		nice := s.Nice
		a.Nice = &nice
	}
	for _, r := range s.Rlimits {
		a.Rlimits = append(a.Rlimits, rlimitOf(r))
	}
	if s.NetNS != "" {
		var err error
		if a.NetNS, err = procattr.OpenNetNS(s.NetNS, s.NetNSInode); err != nil {
			return a, err
		}
	}
	return a, nil
}

func rlimitOf(r protocol.Rlimit) procattr.Rlimit {
	value := func(v int64) uint64 {
		if v < 0 {
			return procattr.Unlimited
		}
		return uint64(v)
	}
	return procattr.Rlimit{Name: r.Name, Soft: value(r.Soft), Hard: value(r.Hard)}
}

func parseUmask(text string) (int, error) {
	const bits = 9
	n, err := strconv.ParseUint(text, 8, bits)
	if err != nil {
		return 0, fmt.Errorf("umask %q: want an octal number of at most 777, such as 027", text)
	}
	return int(n), nil
}

// checkAttrs tells what is wrong with what attrsOf reads.
func checkAttrs(s *protocol.Spec, add func(format string, args ...any)) {
	switch s.NewPrivileges {
	case "", protocol.NewPrivilegesAllow, protocol.NewPrivilegesDeny:
	default:
		add("newPrivileges %q: want allow or deny", s.NewPrivileges)
	}
	if s.Umask != "" {
		if _, err := parseUmask(s.Umask); err != nil {
			add("%v", err)
		}
	}
	const first, last, most = -20, 19, 1000
	if s.Nice < first || s.Nice > last {
		add("nice %d: want %d to %d", s.Nice, first, last)
	}
	if s.OOMScoreAdj < -most || s.OOMScoreAdj > most {
		add("oomScoreAdj %d: want %d to %d", s.OOMScoreAdj, -most, most)
	}
	seen := map[string]bool{}
	for i, r := range s.Rlimits {
		l := rlimitOf(r)
		if err := l.Check(); err != nil {
			add("rlimits[%d]: %v", i, err)
		}
		if seen[r.Name] {
			add("rlimits[%d]: %s is there twice", i, r.Name)
		}
		seen[r.Name] = true
	}
	if s.NetNS != "" && s.NetNS[0] != '/' {
		add("netNS %q: must be absolute, such as /run/netns/NAME", s.NetNS)
	}
}
