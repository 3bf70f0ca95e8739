package container

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/image"

	"tandem/executor"
)

// TestThreeCallsOfALaunch: an image that was launched before on this agent, by
// whichever executor, is not asked for again: create, attach, start, and nothing else.
func TestThreeCallsOfALaunch(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	f.opt.ImageCache = filepath.Join(f.dir, "images")
	another := func() *fixture {
		o, _ := behindProxy(t)
		o.Close()
		r, err := New(Options{Host: p.Host, Journal: o.owner, ImageCache: f.opt.ImageCache})
		if err != nil {
			t.Fatal(err)
		}
		o.Runtime = r
		t.Cleanup(func() { r.Close() })
		return o
	}
	ref := "tandem-test-index-" + strings.TrimPrefix(strings.ReplaceAll(f.owner.Name(), ".", "-"), "0-")
	if err := f.docker.ImageTag(f.ctx(), testImage, ref+":latest"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = f.docker.ImageRemove(context.Background(), ref+":latest", image.RemoveOptions{})
	})
	launch := func(f *fixture) ([]string, executor.Started) {
		p.Seen("")
		s := f.launch(f.task("sleep 60", func(e *executor.Task) { e.Spec.Container.Image = ref }))
		return kinds(p.Seen("")), s
	}
	three := []string{"POST create", "POST attach", "POST start"}
	// Others tag images on this engine, too; then it is right to ask again.
	eventually(t, "a launch of three calls", func() bool {
		_, first := launch(f)
		calls, second := launch(another())
		if first.ImageDigest == "" || first.ImageDigest != second.ImageDigest {
			t.Errorf("digests %q and %q", first.ImageDigest, second.ImageDigest)
		}
		t.Log(calls)
		return slices.Equal(calls, three)
	})
	// The name means another image now: that is noticed at once.
	other := newImage(t, f)
	if err := f.docker.ImageTag(f.ctx(), other, ref+":latest"); err != nil {
		t.Fatal(err)
	}
	task := f.task("", func(e *executor.Task) { e.Spec.Container.Image = ref })
	if err := f.Prepare(f.ctx(), task, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if got := f.images[task.ID].Digest; got != other {
		t.Errorf("the name means %s, not %s", other, got)
	}
	// And that it means none.
	for _, name := range []string{ref + ":latest"} {
		if _, err := f.docker.ImageRemove(f.ctx(), name, image.RemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	task = f.task("", func(e *executor.Task) { e.Spec.Container.Image, e.Spec.Container.PullPolicy = ref, "Never" })
	if err := f.Prepare(f.ctx(), task, func(string) {}); err == nil || !strings.Contains(err.Error(), "is not on this agent") {
		t.Errorf("gone, and yet: %v", err)
	}
}

// newImage makes an image that nobody else has and returns its id.
func newImage(t *testing.T, f *fixture) string {
	t.Helper()
	out, err := f.docker.ImageImport(f.ctx(), image.ImportSource{Source: strings.NewReader(string(make([]byte, 1024))), SourceName: "-"}, "",
		image.ImportOptions{Message: f.owner.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	text := make([]byte, 4096)
	n, _ := out.Read(text)
	_, rest, ok := strings.Cut(string(text[:n]), "sha256:")
	if !ok || len(rest) < 64 {
		t.Fatalf("no id: %s", text[:n])
	}
	id := "sha256:" + rest[:64]
	t.Cleanup(func() {
		_, _ = f.docker.ImageRemove(context.Background(), id, image.RemoveOptions{Force: true})
	})
	return id
}
