package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tandem/localmesos/link"
)

// TestNothingIsSaidBeforeItIsOnDisk holds the loop and looks what would be let out.
func TestNothingIsSaidBeforeItIsOnDisk(t *testing.T) {
	t.Parallel()
	_, a := registered(t, nil)
	var said []string
	say := func(s string) func() { return func() { said = append(said, s) } }
	var early, late []string
	a.loop.do(a.ctx, func() {
		a.out(say("nothing recorded"))
		f, err := os.Create(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Error(err)
			return
		}
		a.group.File(f.Name(), f)
		a.out(say("first"))
		a.out(say("second"))
		early = append(early, said...)
		a.commit()
		a.out(say("third"))
		late = append(late, said...)
	})
	if len(early) != 1 || len(late) != 4 || late[1] != "first" || late[2] != "second" {
		t.Errorf("before the commit: %q, after it: %q", early, late)
	}
}

// TestAnAgentThatCannotKeepItsWordEnds closes a file behind the agent's back.
func TestAnAgentThatCannotKeepItsWordEnds(t *testing.T) {
	t.Parallel()
	_, a := registered(t, nil)
	ok := a.durably(t.Context(), func() {
		f, err := os.Create(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Error(err)
			return
		}
		f.Close()
		a.group.File(f.Name(), f)
	})
	if ok {
		t.Error("a caller was told that what is not on disk is done")
	}
	<-a.Done()
	if err := a.Err(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the agent ended with %v", err)
	}
}

// TestTheLastWordOfAStreamCounts holds the loop until the stream has ended, whose
// last word is to shut down.
func TestTheLastWordOfAStreamCounts(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	release := make(chan struct{})
	a.loop.post(func() { <-release })
	m.mu.Lock()
	stream := m.stream
	m.mu.Unlock()
	m.send(link.Event{Type: link.EventShutdown, Shutdown: "go"})
	m.hangUp()
	<-stream.Done()
	close(release)
	<-a.Done()
	if err := a.Err(); !errors.Is(err, errMasterSaidSo) {
		t.Errorf("the agent ended with %v", err)
	}
}
