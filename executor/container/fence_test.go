package container

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"tandem/internal/enginetest"
	"tandem/internal/journal"
)

// intent is the record of a container that nobody has made, by an owner of its own.
func intent(t *testing.T, image string) (rec journal.Record, name string) {
	t.Helper()
	id := "never-made-" + strconv.FormatInt(rand.Int64(), 36)
	name = containerName(id)
	data, err := json.Marshal(Record{Name: name, Image: image})
	if err != nil {
		t.Fatal(err)
	}
	return journal.Record{Kind: Kind, ID: id, Owner: "dead." + id, Created: time.Now(), Data: data}, name
}

// TestFence: while a fence stands, what a dead executor asked for cannot be made any
// more, and afterwards nothing is left, the fence included.
func TestFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rec, name := intent(t, testImage)
	done := make(chan error, 1)
	begin := time.Now()
	go func() { done <- NewCleaner("")(f.ctx(), rec) }()
	eventually(t, "the fence", func() bool {
		c, err := docker.ContainerInspect(f.ctx(), name)
		return err == nil && c.Config.Labels[labelFence] != "" && c.State.Status == "created"
	})
	// The request of the dead executor, which the engine comes to only now.
	late, err := docker.ContainerCreate(f.ctx(), &container.Config{Image: testImage, Labels: map[string]string{labelOwner: rec.Owner, labelTask: rec.ID}}, nil, nil, nil, name)
	if err == nil {
		_ = docker.ContainerRemove(f.ctx(), late.ID, container.RemoveOptions{Force: true})
		t.Error("a container was made beside the fence")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < fenceTime {
		t.Errorf("the fence stood for %v only", took)
	}
	if left := containersOf(t, rec.Owner); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestFenceOfADeadReaper: the next one finds it, and removes it in the end.
func TestFenceOfADeadReaper(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rec, name := intent(t, testImage)
	spec := fenceSpec(rec, testImage)
	id, err := f.engine.Create(f.ctx(), name, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewCleaner("")(f.ctx(), rec); err != nil {
		t.Error(err)
	}
	if _, err := docker.ContainerInspect(f.ctx(), id); err == nil {
		t.Error("the fence stays")
	}
	// What it kept away came under another name: somebody renamed it.
	if _, err = f.engine.Create(f.ctx(), name, spec); err != nil {
		t.Fatal(err)
	}
	delete(spec.Labels, labelFence)
	if _, err = f.engine.Create(f.ctx(), name+"-renamed", spec); err != nil {
		t.Fatal(err)
	}
	if err := NewCleaner("")(f.ctx(), rec); err != nil {
		t.Error(err)
	}
	if left := containersOf(t, rec.Owner); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestContainerThatIsJustBeingMade is shown by the engine already, which does not know it
// when it is to be removed. It has not been removed then: it comes a moment later.
func TestContainerThatIsJustBeingMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rec, name := intent(t, testImage)
	spec := fenceSpec(rec, testImage)
	delete(spec.Labels, labelFence)
	if _, err := f.engine.Create(f.ctx(), name, spec); err != nil {
		t.Fatal(err)
	}
	p := enginetest.NewProxy(t, "/var/run/docker.sock")
	p.Arm("DELETE .*/containers/", enginetest.Fail404, 2) // found by its name, and by its labels
	if err := NewCleaner(p.Host)(f.ctx(), rec); err == nil || !strings.Contains(err.Error(), "just making it") {
		t.Errorf("it counts as removed: %v", err)
	}
	if err := NewCleaner(p.Host)(f.ctx(), rec); err != nil {
		t.Error(err)
	}
	if left := containersOf(t, rec.Owner); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestNoFence: where the engine can say by itself that nothing will come, and where it cannot.
func TestNoFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	clean := NewCleaner("")
	for name, change := range map[string]func(rec *journal.Record){
		"the image is not there":     func(rec *journal.Record) { rec.Data = []byte(`{"image":"tandem-test-no-such-image:1"}`) },
		"the agent was booted since": func(rec *journal.Record) { rec.BootID = "an earlier boot" },
		"the record is old":          func(rec *journal.Record) { rec.Created = time.Now().Add(-longAgo) },
		"no image, another clock":    func(rec *journal.Record) { rec.Data, rec.Created = nil, time.Now().Add(time.Hour) },
		"no image, and it is old":    func(rec *journal.Record) { rec.Data, rec.Created = nil, time.Now().Add(-settle) },
	} {
		rec, _ := intent(t, testImage)
		change(&rec)
		begin := time.Now()
		if err := clean(f.ctx(), rec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %v", name, time.Since(begin))
	}
	rec, _ := intent(t, testImage)
	rec.Data = nil
	if err := clean(f.ctx(), rec); err == nil || !strings.Contains(err.Error(), "may still be making it") {
		t.Errorf("a fresh record that names no image: %v", err)
	}
	for what, want := range map[enginetest.Fault]string{enginetest.Fail409: "just making it", enginetest.Fail500: "may still be making it", enginetest.DropResponse: "create container", enginetest.DropRequest: "create container"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := enginetest.NewProxy(t, "/var/run/docker.sock")
			rec, _ := intent(t, testImage)
			p.Arm("POST .*/containers/create", what, 1)
			if err := NewCleaner(p.Host)(t.Context(), rec); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("fault %d: %v", what, err)
			}
			// The next look settles it.
			if err := NewCleaner(p.Host)(t.Context(), rec); err != nil {
				t.Errorf("after fault %d: %v", what, err)
			}
			if left := containersOf(t, rec.Owner); len(left) > 0 {
				t.Errorf("after fault %d: left %v", what, left)
			}
		})
	}
}
