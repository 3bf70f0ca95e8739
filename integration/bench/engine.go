package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"tandem/api"
)

// engine is the Docker Engine, used bare, with an image of busybox.
type engine struct {
	*client.Client
	image string
}

// openEngine connects and makes the image. When there is no engine, it returns
// nil and why.
func openEngine(ctx context.Context) (*engine, string, error) {
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err == nil {
		_, err = docker.Ping(ctx)
	}
	if err != nil {
		return nil, "not measured: no Docker Engine: " + err.Error(), nil //nolint:nilerr // the reason is returned
	}
	e := &engine{docker, fmt.Sprintf("tandem-bench-%d:latest", os.Getpid())}
	if err := e.importBusybox(ctx); err != nil {
		docker.Close()
		return nil, "", err
	}
	return e, "", nil
}

func (e *engine) close(ctx context.Context) error {
	_, err := e.ImageRemove(context.WithoutCancel(ctx), e.image, image.RemoveOptions{Force: true})
	return errors.Join(err, e.Close())
}

// sleeper is a container that does nothing.
func (e *engine) sleeper() api.TaskSpec {
	return api.TaskSpec{
		Kind: api.TaskContainer, Network: api.TaskNetwork{Mode: "HOST"},
		Container: &api.ContainerTask{Image: e.image, Command: []string{"/bin/sleep"}, Args: []string{"1000"}, PullPolicy: "Never"},
	}
}

// bare creates and starts a sleeper by the Engine API alone. It is the caller's
// to remove.
func (e *engine) bare(ctx context.Context) (id string, took time.Duration, err error) {
	began := time.Now()
	c, err := e.ContainerCreate(ctx, &container.Config{Image: e.image, Cmd: []string{"/bin/sleep", "1000"}}, &container.HostConfig{NetworkMode: "host"}, nil, nil, "")
	if err != nil {
		return "", 0, err
	}
	if err = e.ContainerStart(ctx, c.ID, container.StartOptions{}); err != nil {
		return "", 0, errors.Join(err, e.remove(ctx, c.ID))
	}
	return c.ID, time.Since(began), nil
}

func (e *engine) remove(ctx context.Context, id string) error {
	return e.ContainerRemove(context.WithoutCancel(ctx), id, container.RemoveOptions{Force: true})
}

// dockerRun is what a person would type, 0 where there is no such program.
func (e *engine) dockerRun(ctx context.Context) (time.Duration, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return 0, nil //nolint:nilerr // the line of the table says so
	}
	began := time.Now()
	out, err := exec.CommandContext(ctx, docker, "run", "--detach", "--network=host", e.image, "/bin/sleep", "1000").Output()
	if err != nil {
		return 0, fmt.Errorf("docker run: %w", err)
	}
	took := time.Since(began)
	return took, e.remove(ctx, string(bytes.TrimSpace(out)))
}

// importBusybox makes the image; nothing is pulled.
func (e *engine) importBusybox(ctx context.Context) error {
	binary, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return fmt.Errorf("%w; install busybox-static", err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(binary))}),
		func() error { _, err := w.Write(binary); return err }(),
		w.WriteHeader(&tar.Header{Name: "bin/sleep", Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}),
		w.Close(),
	)
	if err != nil {
		return err
	}
	body, err := e.ImageImport(ctx, image.ImportSource{Source: &buf, SourceName: "-"}, e.image, image.ImportOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}
