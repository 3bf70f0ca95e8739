package container

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	dcontainer "github.com/docker/docker/api/types/container"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/journal"
)

// BenchmarkLaunch compares create, start and inspect through the runtime, with
// its record on disk, against the same three calls made bare, alternating in the
// same run. It reports the medians in milliseconds.
func BenchmarkLaunch(b *testing.B) {
	if noEngine != "" {
		b.Skip("no Docker Engine: ", noEngine)
	}
	ctx := context.Background()
	dir := b.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal"))
	if err != nil {
		b.Fatal(err)
	}
	own, err := j.Own("bench")
	if err != nil {
		b.Fatal(err)
	}
	defer own.Close()
	r, err := New(Options{Journal: own})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	var bare, ours samples
	for i := range b.N {
		bare.add(b, func() string {
			c, err := docker.ContainerCreate(ctx, &dcontainer.Config{Image: testImage, Cmd: []string{"sleep 60"}},
				&dcontainer.HostConfig{NetworkMode: "none"}, nil, nil, "")
			if err != nil {
				b.Fatal(err)
			}
			if err := docker.ContainerStart(ctx, c.ID, dcontainer.StartOptions{}); err != nil {
				b.Fatal(err)
			}
			if _, err := docker.ContainerInspect(ctx, c.ID); err != nil {
				b.Fatal(err)
			}
			return c.ID
		}, func(id string) error {
			return docker.ContainerRemove(ctx, id, dcontainer.RemoveOptions{Force: true})
		})
		task := &executor.Task{ID: fmt.Sprintf("%d.%d.bench", time.Now().UnixNano(), i), Owner: "bench", Sandbox: filepath.Join(dir, "sandbox"),
			Spec: &api.TaskSpec{Container: &api.ContainerTask{Image: testImage, Args: []string{"sleep 60"}}, Network: api.TaskNetwork{Mode: "NONE"}}}
		ours.add(b, func() string {
			if err := r.Prepare(ctx, task, func(string) {}); err != nil {
				b.Fatal(err)
			}
			if err := r.Create(ctx, task); err != nil {
				b.Fatal(err)
			}
			if _, err := r.Start(ctx, task.ID); err != nil {
				b.Fatal(err)
			}
			return task.ID
		}, func(id string) error { return r.Remove(ctx, id) })
	}
	b.ReportMetric(bare.median(), "bare-ms")
	b.ReportMetric(ours.median(), "runtime-ms")
	b.ReportMetric(ours.median()-bare.median(), "added-ms")
}

type samples []time.Duration

func (s *samples) add(b *testing.B, launch func() string, remove func(id string) error) {
	begin := time.Now()
	id := launch()
	*s = append(*s, time.Since(begin))
	b.StopTimer()
	defer b.StartTimer()
	if err := remove(id); err != nil {
		b.Fatal(err)
	}
}

func (s samples) median() float64 {
	slices.Sort(s)
	return float64(s[len(s)/2].Microseconds()) / 1000
}
