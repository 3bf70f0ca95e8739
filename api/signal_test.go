package api

import (
	"syscall"
	"testing"
)

func TestSignalNumber(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]syscall.Signal{
		"SIGHUP": 1, "hup": 1, "Sigterm": 15, "15": 15, "64": 64, "0": 0, "65": 0, "-1": 0, "": 0, "SIG": 0, "SIGNOTHING": 0, "SIGSIGHUP": 0,
	} {
		if got, err := SignalNumber(name); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	}
}
