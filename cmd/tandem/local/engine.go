package local

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/docker/docker/client"
)

// engineTimeout bounds the question whether there is an engine: a hung one must
// not keep the process part from starting.
const engineTimeout = 3 * time.Second

// describeEngine is one line about the Docker Engine; ok tells whether containers can run.
func describeEngine(ctx context.Context) (line string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return "none; container tasks will be refused: " + reason(err), false
	}
	defer c.Close()
	v, err := c.ServerVersion(ctx)
	if err != nil {
		return fmt.Sprintf("none at %s; container tasks will be refused: %s", c.DaemonHost(), reason(err)), false
	}
	return fmt.Sprintf("Docker Engine %s (API %s) at %s", v.Version, c.ClientVersion(), c.DaemonHost()), true
}

// reason is what the kernel said, where it was the kernel; the client's own
// text names the same thing several times.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", engineTimeout)
	}
	return err.Error()
}
