package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// underSystemd starts and ends processes as transient units (systemd-run(1)), where
// systemd is in charge of the machine (sd_booted(3)).
func underSystemd(ctx context.Context, sleep string, bareUp, bareDown time.Duration) (results []result, err error) {
	what := func(s string) string { return fmt.Sprintf("systemd-run: %d processes %s", many, s) }
	if _, err := os.Stat("/run/systemd/system"); errors.Is(err, os.ErrNotExist) {
		return []result{{Name: what("up"), Unit: "ms", Note: "not measured: systemd is not in charge of this machine"}}, nil
	}
	prefix := fmt.Sprintf("tandem-bench-%d-", os.Getpid())
	stop := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return exec.CommandContext(ctx, "systemctl", "stop", prefix+"*.service").Run()
	}
	running := true
	defer func() {
		if running {
			err = errors.Join(err, stop(context.WithoutCancel(ctx)))
		}
	}()
	began := time.Now()
	if err := together(many, lanes, func(i int) error {
		return exec.CommandContext(ctx, "systemd-run", "--quiet", "--collect", "--unit="+prefix+strconv.Itoa(i), sleep, "100000").Run()
	}); err != nil {
		return nil, fmt.Errorf("systemd-run: %w", err)
	}
	up := time.Since(began)
	began = time.Now()
	if err := stop(ctx); err != nil {
		return nil, fmt.Errorf("systemctl stop: %w", err)
	}
	running = false
	return []result{span(what("up"), up, bareUp), span(what("down"), time.Since(began), bareDown)}, nil
}
