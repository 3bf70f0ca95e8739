package engine

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// ExecSpec is a command to run in a running container; see "Create an exec
// instance" in the Engine API reference.
type ExecSpec struct {
	Cmd          []string
	Env          []string `json:",omitempty"`
	User         string   `json:",omitempty"`
	WorkingDir   string   `json:",omitempty"`
	Tty          bool     `json:",omitempty"`
	AttachStdin  bool     `json:",omitempty"`
	AttachStdout bool
	AttachStderr bool
}

// Exec is what InspectExec tells.
type Exec struct {
	Running bool
	// ExitCode is meant once the command has ended.
	ExitCode int
	// Pid is the process on the machine; 0 before it runs.
	Pid int
}

// CreateExec prepares a command and returns its id. Nothing runs yet.
func (c *Client) CreateExec(ctx context.Context, containerID string, s *ExecSpec) (string, error) {
	var out struct {
		ID string `json:"Id"`
	}
	err := c.do(ctx, request{op: "prepare a command in container " + short(containerID), method: http.MethodPost,
		path: "/containers/" + containerID + "/exec", body: s, timeout: c.quick}, &out)
	return out.ID, err
}

// StartExec runs a prepared command and returns what it writes, as the
// engine's stream of frames, for the caller to close; the stream ends with the
// command. It cannot be started twice.
func (c *Client) StartExec(ctx context.Context, execID string) (io.ReadCloser, error) {
	resp, err := c.stream(ctx, request{op: "run a command in a container", method: http.MethodPost,
		path: "/exec/" + execID + "/start", body: struct{ Detach, Tty bool }{}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Duplex is a connection that was handed over.
type Duplex interface {
	io.ReadWriteCloser
	// CloseWrite ends the input.
	CloseWrite() error
}

// AttachExec runs a prepared command and returns its input and output. The
// latter comes as it is with a terminal, and otherwise as the engine's stream of
// frames. The context is for the start only.
func (c *Client) AttachExec(ctx context.Context, execID string, tty bool) (Duplex, error) {
	const op = "run a command in a container"
	resp, err := c.stream(ctx, request{op: op, method: http.MethodPost,
		path: "/exec/" + execID + "/start", body: struct{ Detach, Tty bool }{Tty: tty},
		header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}}})
	if err != nil {
		return nil, err
	}
	d, ok := resp.Body.(Duplex)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body.Close()
		return nil, &Error{Op: op, Status: resp.StatusCode, Message: "the connection was not handed over"}
	}
	return d, nil
}

// ResizeExec sets the size of a running command's terminal.
func (c *Client) ResizeExec(ctx context.Context, execID string, width, height uint16) error {
	return c.do(ctx, request{op: "set the size of a terminal", method: http.MethodPost, path: "/exec/" + execID + "/resize", timeout: c.quick,
		query: url.Values{"w": {strconv.Itoa(int(width))}, "h": {strconv.Itoa(int(height))}}}, nil)
}

// InspectExec tells what has become of a command.
func (c *Client) InspectExec(ctx context.Context, execID string) (*Exec, error) {
	var out Exec
	err := c.do(ctx, request{op: "look at a command in a container", method: http.MethodGet,
		path: "/exec/" + execID + "/json", timeout: c.quick}, &out)
	if err != nil {
		return nil, err
	}
	return &out, nil
}
