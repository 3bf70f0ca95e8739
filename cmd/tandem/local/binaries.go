package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"tandem/cmd/tandem/exit"
)

// The programs that the stack runs as processes of their own.
const (
	executorBinary = "tandem-executor"
	processdBinary = "tandem-processd"
)

// binaries are the paths of the programs.
type binaries struct {
	executor, processd string
}

// findBinaries looks beside this program, then in PATH, and reports all that are missing.
func findBinaries(self string, lookPath func(string) (string, error)) (binaries, error) {
	var b binaries
	var missing []error
	for _, p := range []struct {
		name string
		path *string
	}{{executorBinary, &b.executor}, {processdBinary, &b.processd}} {
		path, err := findBinary(self, p.name, lookPath)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		*p.path = path
	}
	return b, exit.With(exit.Failure, errors.Join(missing...))
}

func findBinary(self, name string, lookPath func(string) (string, error)) (string, error) {
	beside := filepath.Join(filepath.Dir(self), name)
	if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
		return beside, nil
	}
	path, err := lookPath(name)
	if err != nil {
		return "", fmt.Errorf("program %s is missing: it is neither in %s nor in PATH; build it there with \"make build\"", name, filepath.Dir(self))
	}
	return filepath.Abs(path)
}

// selfPath is this program with symbolic links resolved, because the others
// lie beside the real file.
func selfPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the path of this program: %w", err)
	}
	return filepath.EvalSymlinks(self)
}

var lookPath = exec.LookPath
