package procid

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalGroup sends sig to the process group that the process leads or, once it has ended,
// led; a process that leads none gets it alone. Kernels before 6.9 cannot do it at
// once: there the members are looked for, until no new one is found.
func (p *Process) SignalGroup(sig syscall.Signal) error {
	const toGroup = 1 << 2 // PIDFD_SIGNAL_PROCESS_GROUP
	return p.control(func(fd int) error {
		err := unix.PidfdSendSignal(fd, sig, nil, toGroup)
		if errors.Is(err, unix.EINVAL) {
			return p.signalMembers(fd, sig)
		}
		return p.groupError(sig, err)
	})
}

func (p *Process) groupError(sig syscall.Signal, err error) error {
	if errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("signal %d to the group of pid %d: %w", int(sig), p.id.Pid, err)
	}
	return nil
}

// signalMembers is SignalGroup for kernels that cannot. Each process gets the signal once.
func (p *Process) signalMembers(fd int, sig syscall.Signal) error {
	own := unix.PidfdSendSignal(fd, sig, nil, 0)
	if own != nil && !errors.Is(own, unix.ESRCH) {
		return p.groupError(sig, own)
	}
	told := map[Identity]bool{p.id: true}
	const rounds = 50 // a storm of forks that is faster is for a control group to end
	for range rounds {
		fresh, err := p.members(told)
		if err != nil || len(fresh) == 0 {
			if err == nil && own != nil && len(told) == 1 {
				err = unix.ESRCH
			}
			return p.groupError(sig, err)
		}
		for _, id := range fresh {
			told[id] = true
			if err := p.signalMember(id, sig); err != nil {
				return err
			}
		}
	}
	return nil
}

// members lists the living processes of the group besides those that are known.
func (p *Process) members(known map[Identity]bool) ([]Identity, error) {
	// The kernel does not give a pid away while a group has that number: when it is
	// another's, the group has ended.
	if now, err := Of(p.id.Pid); err == nil && now != p.id {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		led, err := p.leads(pid)
		if err != nil {
			return nil, err
		}
		if !led {
			continue
		}
		id, err := Of(pid)
		if Scarce(err) {
			return nil, err
		}
		if err == nil && id.StartTime >= p.id.StartTime && !known[id] {
			out = append(out, id)
		}
	}
	return out, nil
}

// signalMember is for one that may have ended meanwhile, or left the group.
func (p *Process) signalMember(id Identity, sig syscall.Signal) error {
	m, err := Open(id)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.Close()
	if led, err := p.leads(id.Pid); err != nil || !led {
		return err
	}
	if err := m.Signal(sig); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// leads tells whether a living process is in the group. One that may not be looked at is not;
// for want of files or memory nothing is known.
func (p *Process) leads(pid int) (bool, error) {
	st, err := readStat(pid)
	if Scarce(err) {
		return false, err
	}
	return err == nil && !st.dead() && st.group == p.id.Pid, nil
}
