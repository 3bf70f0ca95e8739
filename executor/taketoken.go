package executor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// TakeToken removes the token from the process's environment, so that nothing
// that is started inherits it. Call it after ConfigFromEnv, while nothing else
// uses the environment.
//
// It also erases it from /proc/self/environ, which shows the memory in which the
// kernel put the environment (proc(5)) and can be read by every process of the
// same user: a task that shares the machine's processes would find it there. An
// error means that it still stands there.
func TakeToken() error {
	if _, there := os.LookupEnv(tokenVariable); !there {
		return nil
	}
	if err := os.Unsetenv(tokenVariable); err != nil {
		return fmt.Errorf("remove %s from the environment: %w", tokenVariable, err)
	}
	if err := eraseVariable(tokenVariable); err != nil {
		return fmt.Errorf("erase %s from /proc/self/environ: %w", tokenVariable, err)
	}
	return nil
}

// eraseVariable overwrites the value of a variable, where the kernel put it, with zeros.
// The Go runtime has made copies of all variables by then, and does not look there again.
func eraseVariable(name string) error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	start, end, err := environRange(string(stat))
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	block := make([]byte, end-start)
	if _, err := memory.ReadAt(block, start); err != nil {
		return err
	}
	prefix := []byte(name + "=")
	for offset := int64(0); len(block) > 0; {
		entry, rest, _ := bytes.Cut(block, []byte{0})
		if value, ok := bytes.CutPrefix(entry, prefix); ok {
			if _, err := memory.WriteAt(make([]byte, len(value)), start+offset+int64(len(prefix))); err != nil {
				return err
			}
		}
		offset += int64(len(entry)) + 1
		block = rest
	}
	return nil
}

// environRange returns env_start and env_end of a /proc/pid/stat, its fields 50 and 51 (proc_pid_stat(5)).
func environRange(stat string) (start, end int64, err error) {
	// The second field, the command, may hold blanks and parentheses.
	after := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const first, last = 50 - 3, 51 - 3
	if len(after) <= last {
		return 0, 0, fmt.Errorf("/proc/self/stat has %d fields, too few", len(after)+2)
	}
	if start, err = strconv.ParseInt(after[first], 10, 64); err == nil {
		end, err = strconv.ParseInt(after[last], 10, 64)
	}
	if err == nil && (start <= 0 || end < start || end-start > 64<<20) {
		err = fmt.Errorf("/proc/self/stat tells an environment from %d to %d", start, end)
	}
	return start, end, err
}
