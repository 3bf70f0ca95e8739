package container

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
)

// fromRegistry is a task whose image is in a registry of the test.
func (f *fixture) fromRegistry(reg *registry, policy string) *executor.Task {
	ref := strings.TrimPrefix(reg.URL, "http://") + "/app:v1"
	f.t.Cleanup(func() { _, _ = docker.ImageRemove(f.ctx(), ref, image.RemoveOptions{Force: true}) })
	return f.task("", func(e *executor.Task) { e.Spec.Container.Image, e.Spec.Container.PullPolicy = ref, policy })
}

// TestOnePullForManyTaskgroups: taskgroups of one agent that want an image at the
// same time have it pulled once; later ones that must ask do ask.
func TestOnePullForManyTaskgroups(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reg := newRegistry(t, "", "")
	prepare := func() {
		// Another executor of the same agent: the journal is all that they share.
		o, err := f.journal.Own(fmt.Sprint("other-", time.Now().UnixNano()))
		if err != nil {
			t.Error(err)
			return
		}
		defer o.Close()
		r, err := New(Options{Journal: o})
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		f.mutex.Lock()
		task := f.fromRegistry(reg, "Always")
		f.mutex.Unlock()
		if err := r.Prepare(f.ctx(), task, func(string) {}); err != nil {
			t.Error(err)
		}
	}
	prepare()
	one := reg.asked()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(prepare)
	}
	wg.Wait()
	// One of them may come only when the first pull is over.
	if got := reg.asked(); got == 0 || got > 3*one {
		t.Errorf("six at once asked the registry %d times, one asks %d times", got, one)
	}
}

// TestPullIsTriedAgain: a registry that is away for a moment fails nothing, one
// that says no is not asked twice, and the digest is known in the end.
func TestPullIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.pullPause = 10 * time.Millisecond })
	reg := newRegistry(t, "", "")
	reg.broken = 2
	task := f.fromRegistry(reg, "IfNotPresent")
	if err := f.Prepare(f.ctx(), task, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if got := f.images[task.ID]; got.Digest != reg.digest {
		t.Errorf("digest %q, want %q", got, reg.digest)
	}
	gone := newRegistry(t, "", "")
	gone.broken = 1000
	err := f.Prepare(f.ctx(), f.fromRegistry(gone, "IfNotPresent"), func(string) {})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(%d tries)", pullTries)) {
		t.Errorf("a registry that stays away: %v", err)
	}
}

func TestFinalAnswersOfRegistries(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"manifest for a:b not found: manifest unknown": true, "pull access denied for a": true, "unauthorized: who are you": true,
		"received unexpected HTTP status: 503 Service Unavailable": false, "dial tcp 10.0.0.1:443: connect: connection refused": false,
		"write /var/lib/docker/tmp/x: no space left on device": true,
	} {
		if got := final(&engine.Error{Op: "pull", Status: http.StatusInternalServerError, Message: text}); got != want {
			t.Errorf("%q is final: %v", text, got)
		}
	}
	if !final(&engine.Error{Status: http.StatusNotFound}) || final(&engine.UnreachableError{Err: errors.New("broken pipe")}) {
		t.Error("the status does not count")
	}
}

// TestPullTellsLayersAndBytes while it goes on.
func TestPullTellsLayersAndBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reg := newRegistry(t, "", "", 4<<20)
	reg.piece = func(context.Context) { time.Sleep(300 * time.Millisecond) } // the engine tells now and then
	task := f.fromRegistry(reg, "Always")
	var said []string
	if err := f.Prepare(f.ctx(), task, func(s string) { said = append(said, s) }); err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^pulling .*/app:v1 [01]/1 layers [0-4]/[45] MB$`)
	if !slices.ContainsFunc(said, form.MatchString) {
		t.Errorf("said %q", said)
	}
}

// TestPullWithoutProgressIsGivenUp: a registry that stops in the middle of a layer.
func TestPullWithoutProgressIsGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.PullIdle = 700 * time.Millisecond })
	reg := newRegistry(t, "", "", 1<<20)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) }) // before the registry is closed
	reg.piece = func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-stop:
		}
	}
	task := f.fromRegistry(reg, "IfNotPresent")
	err := f.Prepare(f.ctx(), task, func(string) {})
	if err == nil || !strings.Contains(err.Error(), task.Spec.Container.Image) || !strings.Contains(err.Error(), "no answer in time") && !strings.Contains(err.Error(), "no progress") {
		t.Errorf("got %v", err)
	}
}
