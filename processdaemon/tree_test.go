package processdaemon

import (
	"path/filepath"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// TestTermReachesWhatAScriptWaitsFor: a start script with a trap acts on SIGTERM when the
// server that it waits for has ended, and passes nothing on. So the server gets it, too,
// and once: a second one means "at once" to many programs.
func TestTermReachesWhatAScriptWaitsFor(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "./start.sh")
	create(t, d, s)
	// The server needs a moment to end, in which the script has long ended.
	server := "#!/bin/sh\ntrap 'echo term >> terms; sleep 0.2; echo saved > saved; exit 0' TERM\n: > up\nwhile :; do sleep 0.01; done\n"
	for name, text := range map[string]string{"start.sh": "#!/bin/sh\ntrap 'exit 7' TERM\n./server.sh\n", "server.sh": server} {
		if err := d.PutFiles("a", []protocol.File{{Path: name, Content: []byte(text), Mode: 0o755}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Start("a"); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", running)
	eventually(t, "the server is up", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
	begin := time.Now()
	const grace = time.Minute
	if _, err := d.Stop("a", grace); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
	if took := time.Since(begin); took > grace/2 {
		t.Errorf("it was killed at the end of the grace period, after %v", took)
	}
	if got := read(t, filepath.Join(s.WorkPath, "terms")); got != "term\n" || !exists(filepath.Join(s.WorkPath, "saved")) {
		t.Errorf("the server got %q and saved: %v", got, exists(filepath.Join(s.WorkPath, "saved")))
	}
}

// TestTermOfWhatTheStopCommandLeaves: it ends the main process only, and what else is
// there gets its SIGTERM then.
func TestTermOfWhatTheStopCommandLeaves(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*protocol.Spec){
		"stopCmd": func(s *protocol.Spec) { s.StopCmd = `kill -KILL "$MAINPID"` },
		"killCmd": func(s *protocol.Spec) { s.KillCmd = `kill -KILL "$MAINPID"` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t)
			s := spec(d, "a", `sh -c 'trap "echo term >> terms; exit 0" TERM; : > up; while :; do sleep 0.01; done' & exec sleep 60`)
			change(&s)
			run(t, d, s)
			eventually(t, "its worker is up", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
			if _, err := d.Stop("a", time.Minute); err != nil {
				t.Fatal(err)
			}
			awaitState(t, d, "a", ended)
			if got := read(t, filepath.Join(s.WorkPath, "terms")); got != "term\n" {
				t.Errorf("the worker got %q", got)
			}
		})
	}
}
