package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"tandem/internal/execstream"
	"tandem/processdaemon/protocol"
)

// SetLimits gives a running task other limits; zero takes one away, but for that of processes, which
// stays and which -1 takes away.
func (c *Client) SetLimits(ctx context.Context, id string, l protocol.Limits) error {
	return c.call(ctx, callTimeout, http.MethodPut, taskPath(id, "/limits"), l, nil)
}

// Upload puts a file beneath the workPath of a running task.
func (c *Client) Upload(ctx context.Context, id string, f protocol.File) error {
	return c.call(ctx, callTimeout, http.MethodPost, taskPath(id, "/upload"), f, nil)
}

// Terminal is where a session reads and writes. It has a name here for those outside of this
// module, who may not import the package that it is of.
type Terminal = execstream.Terminal

// Size is that of a Terminal's TTY, in characters.
type Size = execstream.Size

// Session runs a command beside a running task, with input and output, and returns
// its exit code. When the context ends, the command is killed.
func (c *Client) Session(ctx context.Context, id string, req protocol.SessionRequest, t Terminal) (int, error) {
	resp, err := c.send(ctx, http.MethodPost, taskPath(id, "/session"), req, "Connection", "Upgrade", "Upgrade", protocol.SessionProtocol)
	if err != nil {
		return 0, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		return 0, errors.Join(fmt.Errorf("process daemon at %s: %s, and no session; is it older than this executor?", c.socket, resp.Status), resp.Body.Close())
	}
	return execstream.Attach(ctx, conn, t)
}
