package container

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// User is whom a container runs as.
type User struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32
}

// LookupUser finds a user by name. An unknown one is an error, never the agent's own.
func LookupUser(name string) (*User, error) {
	u, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		return nil, fmt.Errorf("No such user '%s'", name) //nolint:staticcheck // Mesos's wording
	}
	if err != nil {
		return nil, fmt.Errorf("looking up user %q: %w", name, err)
	}
	out := &User{Name: name}
	if out.UID, err = number(u.Uid); err != nil {
		return nil, err
	}
	if out.GID, err = number(u.Gid); err != nil {
		return nil, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("looking up the groups of user %q: %w", name, err)
	}
	for _, g := range groups {
		id, err := number(g)
		if err != nil {
			return nil, err
		}
		out.Groups = append(out.Groups, id)
	}
	return out, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user or group id %q: %w", text, err)
	}
	return uint32(n), nil
}

// same tells whether the user is the one that the agent runs as.
func (u *User) same() bool { return u == nil || int(u.UID) == os.Geteuid() }

// Switches tells whether running as this user means to change user.
func (u *User) Switches() bool { return !u.same() }

// credential is nil when there is nothing to change.
func (u *User) credential() *syscall.Credential {
	if u.same() {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}
