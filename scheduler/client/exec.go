package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"tandem/scheduler/wire"
)

// Exec opens a session in a task of a taskgroup, named by its id or its name.
// What goes over the connection is of internal/execstream; the caller closes it.
func (c *Client) Exec(ctx context.Context, namespace, taskgroup string, req wire.ExecRequest) (io.ReadWriteCloser, error) {
	path := "/v1/taskgroups/" + url.PathEscape(namespace) + "/" + url.PathEscape(taskgroup) + "/exec"
	resp, err := c.send(ctx, http.MethodPost, path, nil, req, "Connection", "Upgrade", "Upgrade", wire.ExecProtocol)
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.Join(fmt.Errorf("scheduler %s: POST %s: %s, and no session", c.base, path, resp.Status), resp.Body.Close())
	}
	return conn, nil
}
