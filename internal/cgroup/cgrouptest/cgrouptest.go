// Package cgrouptest checks that tests leave no control groups behind. It only looks.
package cgrouptest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

var (
	mu    sync.Mutex
	bases = map[string]string{} // and the test that uses it
)

// Expect says that tests use these subtrees, such as tandem/p-1a2b, and have to leave none of them.
func Expect(subtrees ...string) {
	mu.Lock()
	defer mu.Unlock()
	for _, b := range subtrees {
		bases[b] = user()
	}
}

// user is the test that calls Expect, as far as the stack tells.
func user() string {
	const depth = 64
	pcs := make([]uintptr, depth)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		f, more := frames.Next()
		if _, name, found := strings.Cut(f.Function, ".Test"); found {
			return "Test" + name
		}
		if !more {
			return "a test"
		}
	}
}

// Run runs the tests, by m.Run, and returns their exit code, or 1 when something
// still runs in one of the subtrees that they named to Expect, in whatever hierarchy. An empty
// group is told of and removed, as the next daemon would do (cgroup.Tree.Sweep).
func Run(run func() int) int {
	code := run()
	// What was told to end may do so a moment later, a keeper without processes for one.
	const limit, pause = 10 * time.Second, 20 * time.Millisecond
	left := existing()
	for end := time.Now().Add(limit); len(left) > 0 && time.Now().Before(end); left = existing() {
		time.Sleep(pause)
	}
	for dir, test := range left {
		if err := remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "control group of %s left, and it is in use: %v\n", test, err)
			code = max(code, 1)
			continue
		}
		fmt.Fprintf(os.Stderr, "empty control group of %s left, and removed: %s\n", test, dir)
	}
	return code
}

// existing returns the directories that are there, each with the test that uses it.
func existing() map[string]string {
	mu.Lock()
	defer mu.Unlock()
	left := map[string]string{}
	for b, test := range bases {
		for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			found, _ := filepath.Glob(filepath.Join(pattern, b)) // the pattern is well-formed
			for _, dir := range found {
				left[dir] = test
			}
		}
	}
	return left
}

// remove removes a group and those below it. The kernel refuses one that has a process.
func remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}
