package container

import (
	"context"
	"fmt"
	"strings"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
)

var _ executor.Committer = (*Runtime)(nil)

// Commit makes an image of a running container's files as they are now. The
// container is not paused, so that its checks and its end go on; what it writes
// meanwhile may be in the image in part. Volumes and the files of secrets are mounts,
// and in no image. Of the task's environment and labels the image has the names only,
// since secrets may be among them, and a container with the labels would be taken for
// the task's.
func (r *Runtime) Commit(ctx context.Context, taskID, image string) (string, error) {
	id, _, err := r.running(taskID)
	if err != nil {
		return "", err
	}
	switch _, err := r.engine.Image(ctx, image); {
	case err == nil:
		return "", fmt.Errorf("image %q is on this agent already, and others may run it; choose another name", image)
	case !engine.IsNotFound(err):
		return "", err
	}
	c, err := r.engine.Inspect(ctx, id)
	if err != nil {
		return "", err
	}
	from, err := r.engine.Image(ctx, c.Image)
	if err != nil {
		return "", err
	}
	env, labels := ownConfig(c, from)
	return r.engine.Commit(ctx, id, image, env, labels)
}

// ownConfig is what takes a task's environment and labels back to those of its
// image. The engine merges them with the container's: what is there can be emptied,
// not taken out.
func ownConfig(c *engine.Container, from *engine.Image) (env []string, labels map[string]string) {
	own := map[string]string{}
	for _, e := range from.Config.Env {
		name, _, _ := strings.Cut(e, "=")
		own[name] = e
	}
	for _, e := range c.Config.Env {
		name, _, _ := strings.Cut(e, "=")
		if e = own[name]; e == "" {
			e = name + "="
		}
		env = append(env, e)
	}
	labels = map[string]string{}
	for name := range c.Config.Labels {
		labels[name] = from.Config.Labels[name]
	}
	return env, labels
}
