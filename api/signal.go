package api

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalNumber reads the name of a signal, with or without SIG and in any case
// of letters, or its number, 1 to 64. See signal(7).
func SignalNumber(name string) (syscall.Signal, error) {
	const highest = 64
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > highest {
			return 0, fmt.Errorf("there is no signal %d; signals are 1 to %d", n, highest)
		}
		return syscall.Signal(n), nil
	}
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if s := unix.SignalNum(upper); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("there is no signal %q; name one such as SIGTERM or SIGQUIT", clip(name))
}
