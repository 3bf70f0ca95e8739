// Package cgrouptest checks that tests leave no control groups behind. It only looks.
package cgrouptest

import (
	"fmt"
	"os"
	"slices"
	"time"

	"tandem/internal/cgroup"
)

// Run runs the tests, by m.Run, and returns their exit code, or 1 when subtrees of
// parent are left afterwards whose names begin with one of the prefixes and that no
// living program holds. Those that were there before do not count.
func Run(run func() int, parent string, prefixes ...string) int {
	tree := cgroup.Open(fmt.Sprintf("%s/look-%d", parent, os.Getpid()))
	defer tree.Close()
	if err := tree.Hold(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	before, err := tree.Unheld(prefixes...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := run()
	left, err := tree.Unheld(prefixes...)
	left = slices.DeleteFunc(left, func(name string) bool { return slices.Contains(before, name) })
	// Those of other runs come and go: what stays is left.
	const limit, pause = 10 * time.Second, 50 * time.Millisecond
	for end := time.Now().Add(limit); err == nil && len(left) > 0 && time.Now().Before(end); time.Sleep(pause) {
		var now []string
		now, err = tree.Unheld(prefixes...)
		left = slices.DeleteFunc(left, func(name string) bool { return !slices.Contains(now, name) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "control groups left below %s: %v\n", parent, left)
		return 1
	}
	return code
}
