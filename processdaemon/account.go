package processdaemon

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is whom a command runs as.
type account struct {
	name string
	uid  int
	gid  int
	home string
	// cred is nil when nothing has to change.
	cred *syscall.Credential
}

// lookupAccount resolves a user by name or number. An unknown one is an
// error: falling through to the daemon's own rights would run it as root.
func lookupAccount(name string) (*account, error) {
	self := os.Getuid()
	if name == "" {
		a := &account{uid: self, gid: os.Getgid(), home: "/"}
		if u, err := user.LookupId(strconv.Itoa(self)); err == nil {
			a.name, a.home = u.Username, u.HomeDir
		}
		return a, nil
	}
	u, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if _, numErr := strconv.ParseUint(name, 10, 32); numErr == nil {
			u, err = user.LookupId(name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("user %q: not known on this agent; create the account or choose another user", name)
	}
	a := &account{name: u.Username, home: u.HomeDir}
	if a.uid, err = strconv.Atoi(u.Uid); err != nil {
		return nil, fmt.Errorf("user %q has the id %q: %w", name, u.Uid, err)
	}
	if a.gid, err = strconv.Atoi(u.Gid); err != nil {
		return nil, fmt.Errorf("user %q has the group id %q: %w", name, u.Gid, err)
	}
	if self != 0 {
		if a.uid != self {
			return nil, fmt.Errorf("user %q: the process daemon runs as uid %d and cannot become another user; run it as root", name, self)
		}
		return a, nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %q: %w", name, err)
	}
	a.cred = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	for _, id := range ids {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %q has the group id %q: %w", name, id, err)
		}
		a.cred.Groups = append(a.cred.Groups, uint32(n))
	}
	return a, nil
}
