package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier tells systemd how the daemon is (sd_notify(3)). Without systemd it
// tells nobody.
type notifier struct{ address string }

// newNotifier takes the address out of the environment, so that no process that
// is started later speaks for the daemon.
func newNotifier() notifier {
	address := os.Getenv("NOTIFY_SOCKET")
	_ = os.Unsetenv("NOTIFY_SOCKET") // fails for malformed names only
	return notifier{address}
}

func (n notifier) tell(state string) error {
	if n.address == "" {
		return nil
	}
	// An abstract address begins with @, which package net knows.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell systemd %q: %w", state, err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("tell systemd %q: %w", state, err)
	}
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd %q: %w", state, err)
	}
	return nil
}

// watchdogInterval is how often systemd wants to hear from this process; 0: never.
func watchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond
}

// watchdog tells that all is well, twice in each interval, as long as healthy says so
// in time: what does not is what systemd restarts the daemon for.
func (n notifier) watchdog(ctx context.Context, interval time.Duration, healthy func(context.Context) error) {
	if n.address == "" || interval <= 0 {
		return
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		hctx, cancel := context.WithTimeout(ctx, interval)
		if healthy(hctx) == nil {
			_ = n.tell("WATCHDOG=1") // one that is lost is followed by another in time
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
