package term

import (
	"os"
	"os/signal"
	"syscall"
)

// StopSignals are those with which a user, a service manager or the end of a
// terminal asks a command to stop. SIGHUP is left out where it is ignored from
// the start, as under nohup(1): there the command is meant to outlive its terminal.
func StopSignals() []os.Signal {
	stop := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stop = append(stop, syscall.SIGHUP)
	}
	return stop
}
