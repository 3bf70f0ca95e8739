package failpoint

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// record adds a line to a trail. It is one write to a file opened for appending,
// so the lines of several processes do not mix, and it is in the kernel's hands
// before the point does anything else.
func record(path, name string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d %s\n", os.Getpid(), name)
		f.Close()
	}
	if err != nil {
		// A trail with holes would make a test blind without anybody knowing.
		panic("failpoint: " + err.Error())
	}
}

// Pass is one passing of a point: the Nth time, counted from 1, that a process
// of those in a trail came there.
type Pass struct {
	Name string
	N    int
}

// Kill is what arms exactly this pass with the end of the process, for EnvVar.
func (p Pass) Kill() string {
	if p.N == 1 {
		return p.Name + "=kill"
	}
	return fmt.Sprintf("%s=%d*off->kill", p.Name, p.N-1)
}

// String renders "name #n".
func (p Pass) String() string { return fmt.Sprintf("%s #%d", p.Name, p.N) }

// Trail reads what record wrote: every pass, in the order in which it was first
// seen. Several processes that came the same way give each pass once.
func Trail(path string) ([]Pass, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("failpoint: trail: %w", err)
	}
	defer f.Close()
	var all []Pass
	times, seen := map[string]int{}, map[Pass]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		pid, name, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			return nil, fmt.Errorf("failpoint: trail %s: line %q: want pid and name", path, lines.Text())
		}
		times[pid+" "+name]++
		if p := (Pass{name, times[pid+" "+name]}); !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all, lines.Err()
}
