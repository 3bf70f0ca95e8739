package command

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tandem/localmesos/fault"
)

// awayFlag is hidden: a restart by a fault tells the next program by it how long
// the one before it is to be missed.
const awayFlag = "restart_away"

// process does to this process what a fault asks for. Make it with newProcess.
type process struct {
	acting atomic.Bool
	failed chan struct{}
	away   time.Duration
	// powerOff ends all that an agent runs; nil for a master.
	powerOff func() error
	// url is where it listens: the next program listens there, too.
	url func() string
}

func newProcess() *process { return &process{failed: make(chan struct{})} }

// settle waits, while a fault is being done, until this process is no more or
// that went wrong: an agent whose machine is lost has ended before its process.
func (p *process) settle() {
	if p.acting.Load() {
		<-p.failed
	}
}

// register defines the hidden flag.
func (p *process) register(c *cobra.Command) {
	c.Flags().DurationVar(&p.away, awayFlag, 0, "wait before starting; a restart by a fault sets it")
	c.Flags().Lookup(awayFlag).Hidden = true
}

// wait is the time of being away.
func (p *process) wait(c *cobra.Command) error {
	if p.away <= 0 {
		return nil
	}
	ctx, stop := untilSignal(c)
	defer stop()
	fmt.Fprintf(c.ErrOrStderr(), "away for %s because of a fault\n", p.away)
	select {
	case <-time.After(p.away):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do ends this process as the fault wants it; it returns only when it cannot.
func (p *process) do(f fault.Fault) {
	if p.acting.Swap(true) {
		return // another one is faster
	}
	defer close(p.failed)
	if f.Kind == fault.Lose || f.Kind == fault.Reboot {
		if err := p.powerOff(); err != nil {
			slog.Error("a fault could not be done", "fault", f.String(), "error", err)
			return
		}
	}
	var err error
	switch f.Kind {
	case fault.Restart, fault.Reboot:
		// The same process with another program: whoever waits for it still does,
		// its executors stay its children, and the kernel closes all else.
		var self string
		if self, err = os.Executable(); err == nil {
			err = syscall.Exec(self, restartArgs(os.Args, portOf(p.url()), time.Duration(f.By)), os.Environ())
		}
	default:
		err = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	slog.Error("a fault could not be done", "fault", f.String(), "error", err)
}

// restartArgs is the command line of the next program.
func restartArgs(args []string, port int, away time.Duration) []string {
	if n := len(args); n >= 3 && strings.HasPrefix(args[n-1], "--"+awayFlag+"=") {
		args = args[:n-2] // what the last restart has added would only pile up
	}
	return append(slices.Clone(args), "--port="+strconv.Itoa(port), "--"+awayFlag+"="+away.String())
}

func portOf(base string) int {
	u, err := url.Parse(base)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(u.Port()) // our own URL
	return port
}
