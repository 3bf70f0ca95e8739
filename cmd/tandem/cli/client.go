package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/scheduler/client"
	"tandem/scheduler/wire"
)

// remote is the backend behind the scheduler's HTTP API; it gives errors their exit codes.
type remote struct{ c *client.Client }

// connect makes the client for a scheduler's address.
func connect(address string) (backend, error) {
	c, err := client.New(address)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return remote{c}, nil
}

func (r remote) Apply(ctx context.Context, raws []json.RawMessage, dryRun, strict bool) ([]wire.Change, error) {
	// What the server warns of, the command has said before: both decode alike.
	resp, err := r.c.Apply(ctx, wire.ApplyRequest{Documents: raws, DryRun: dryRun, Strict: strict})
	if err != nil {
		return nil, classify(err)
	}
	return resp.Changes, nil
}

func (r remote) Objects(ctx context.Context, k api.Kind, namespace string) ([]wire.Object, error) {
	out, err := r.c.Objects(ctx, k, namespace)
	return out, classify(err)
}

func (r remote) Taskgroups(ctx context.Context, namespace string) ([]wire.Taskgroup, error) {
	out, err := r.c.Taskgroups(ctx, namespace)
	return out, classify(err)
}

func (r remote) Agents(ctx context.Context) ([]wire.Agent, error) {
	out, err := r.c.Agents(ctx)
	return out, classify(err)
}

func (r remote) Events(ctx context.Context, ref api.Ref) ([]wire.Event, error) {
	out, err := r.c.Events(ctx, ref)
	return out, classify(err)
}

func (r remote) Scale(ctx context.Context, ref api.Ref, replicas int) error {
	return classify(r.c.Scale(ctx, ref, replicas))
}

func (r remote) Restart(ctx context.Context, t target) error {
	if t.kind.name == kindTaskgroup {
		return classify(r.c.RestartTaskgroup(ctx, t.namespace, t.name))
	}
	return classify(r.c.Restart(ctx, t.ref()))
}

func (r remote) Delete(ctx context.Context, ref api.Ref) error {
	return classify(r.c.Delete(ctx, ref))
}

func (r remote) Message(ctx context.Context, namespace, taskgroupID string, m *api.Message) (*api.MessageResult, error) {
	result, err := r.c.Message(ctx, namespace, taskgroupID, m)
	return result, classify(err)
}

func (r remote) Exec(ctx context.Context, namespace, taskgroupID string, req wire.ExecRequest) (io.ReadWriteCloser, error) {
	conn, err := r.c.Exec(ctx, namespace, taskgroupID, req)
	return conn, classify(err)
}

func (r remote) Logs(ctx context.Context, taskgroupID, task string, o logOptions) (io.ReadCloser, error) {
	out, err := r.c.Logs(ctx, taskgroupID, task, client.LogOptions{Stream: o.Stream, Follow: o.Follow, Tail: o.Tail})
	return out, classify(err)
}

func (r remote) LogFiles(ctx context.Context, taskgroupID, task string) ([]api.LogFile, error) {
	out, err := r.c.LogFiles(ctx, taskgroupID, task)
	return out, classify(err)
}

// classify gives what the client returns its exit code.
func classify(err error) error {
	var refused *client.Error
	var unreachable *client.UnreachableError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unreachable):
		return exit.With(exit.Unreachable, err)
	case !errors.As(err, &refused):
		return err
	}
	switch refused.Code {
	case wire.CodeInvalid, wire.CodeTooLarge:
		if n := len(refused.Errors); n > 1 {
			return exit.Errorf(exit.Usage, "%s; nothing was changed\n%w", count(n, "error"), indented{api.Errors(refused.Errors)})
		}
		return exit.With(exit.Usage, err)
	case wire.CodeNotFound:
		return exit.With(exit.NotFound, err)
	case wire.CodeConflict, wire.CodeForbidden:
		return exit.With(exit.Refused, err)
	case wire.CodeTimeout:
		return exit.With(exit.TimedOut, err)
	case wire.CodeUnavailable:
		return exit.With(exit.Unreachable, fmt.Errorf("the scheduler cannot answer now: %w", err))
	}
	return err
}
