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
			return 0, fmt.Errorf("signal %d is unknown; use a number from 1 to %d, or a name such as SIGTERM", n, highest)
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
	return 0, fmt.Errorf("signal %q is unknown; use a name such as SIGTERM or a number from 1 to 64", clip(name))
}
