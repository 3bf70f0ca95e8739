package procid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Wait returns nil once the process has ended (a zombie has), or the context's
// error. It needs no thread: the runtime's poller watches the pidfd. One Wait
// at a time.
func (p *Process) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch err := p.f.SetReadDeadline(time.Time{}); {
	case errors.Is(err, os.ErrNoDeadline):
		return p.poll(ctx)
	case err != nil:
		return fmt.Errorf("wait for %w", p.unusable(err))
	}
	stop := context.AfterFunc(ctx, func() { _ = p.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := p.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for %w", p.unusable(err))
	}
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		var ended bool
		ended, pollErr = readable(int(fd))
		return ended || pollErr != nil
	})
	switch {
	case pollErr != nil:
		return fmt.Errorf("wait for pid %d: %w", p.id.Pid, pollErr)
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return fmt.Errorf("wait for %w", p.unusable(err))
	}
}

// pollPause is the pause between two looks at a handle that the runtime's poller did not
// take: a user may have only so many files in it (fs.epoll.max_user_watches in proc(5)).
const pollPause = 50 * time.Millisecond

// poll is Wait without the poller.
func (p *Process) poll(ctx context.Context) error {
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	for {
		var ended bool
		err := p.control(func(fd int) (err error) {
			ended, err = readable(fd)
			return err
		})
		if err != nil {
			return fmt.Errorf("wait for %w", err)
		}
		if ended {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func readable(fd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0, err
	}
}
