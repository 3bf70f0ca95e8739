// Command demo shows Tandem at work on one machine, through the same command
// line that a user has, and checks every step: it starts the stack, applies the
// examples, talks to what runs, kills an instance from outside, scales, deletes,
// and at the end looks whether anything is left. It exits 1 as soon as a step is
// not as expected.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"tandem/integration/leftover"
)

func main() {
	bin := flag.String("bin", "bin", "directory of the built binaries")
	examples := flag.String("examples", "build/examples", "directory that examples/build.sh has filled")
	keep := flag.Bool("keep", false, "keep the data directory, for looking at it afterwards")
	limit := flag.Duration("limit", 8*time.Minute, "time limit of the whole demo")
	flag.Parse()
	if err := demonstrate(*bin, *examples, *keep, *limit); err != nil {
		newPrinter(os.Stdout).bad("%v", err)
		os.Exit(1)
	}
}

func demonstrate(bin, examples string, keep bool, limit time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d := &demo{out: newPrinter(os.Stdout), seen: map[string]bool{}}
	return d.run(ctx, bin, examples, keep)
}

// run makes the surroundings (data directory, snapshot, stack), walks the steps and looks for leftovers.
func (d *demo) run(ctx context.Context, bin, examples string, keep bool) (err error) {
	if d.tandem, err = filepath.Abs(filepath.Join(bin, "tandem")); err != nil {
		return err
	}
	d.examples = examples
	if d.dir, err = os.MkdirTemp("", "tdemo-"); err != nil {
		return fmt.Errorf("demo: making a data directory: %w", err)
	}
	before := leftover.Take(ctx, d.look())
	defer func() {
		if keep {
			d.out.note("the data directory stays: %s", d.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(d.dir))
	}()

	d.container = engineAnswers(ctx)
	if err := d.start(ctx); err != nil {
		return errors.Join(err, d.stop())
	}
	if err := d.walk(ctx); err != nil {
		d.evidence()
		return errors.Join(err, d.stop())
	}
	d.out.step("Stop the stack")
	if err := d.stop(); err != nil {
		return err
	}
	d.out.good("tandem local has ended by itself, exit code 0")

	d.out.step("Look whether anything is left")
	left := leftover.Wait(context.WithoutCancel(ctx), before, d.look(), 15*time.Second)
	for _, thing := range left {
		d.out.bad("left behind: %s", thing)
	}
	if len(left) > 0 {
		return fmt.Errorf("demo: %d things were left behind", len(left))
	}
	d.out.good("no process, container, network, cgroup, mount or file of it is left outside the data directory")
	d.out.step("Done: everything was as expected")
	return nil
}

// look says what is the demo's own: others may use the machine at the same time.
// Its marks are its directory, which stands in the command line, the
// environment or the working directory of every process; the ids of its
// taskgroups, which stand in the containers' labels; the daemon's runtime directory; and the
// daemon's control group, which is named by a digest of its data directory.
func (d *demo) look() leftover.Options {
	sum := sha256.Sum256([]byte(filepath.Join(d.dir, "data", "tasks")))
	marks := []string{d.dir, "p-" + hex.EncodeToString(sum[:])[:12]}
	for id := range d.seen {
		marks = append(marks, id)
	}
	if d.log != nil {
		if m := regexp.MustCompile(`/run/tandem/(local-[0-9a-f]+)/`).FindStringSubmatch(d.said()); m != nil {
			marks = append(marks, m[1])
		}
	}
	return leftover.Options{Marks: marks, MarkedOnly: true}
}
