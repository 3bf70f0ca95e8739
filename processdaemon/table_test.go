package processdaemon

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"tandem/processdaemon/protocol"
)

// ignoredCells are the cells in which an event changes nothing, state by
// state, each for a reason that was thought about.
var ignoredCells = map[protocol.State][]event{
	// Nothing runs yet, so nothing of a process can happen.
	preparing: {evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evMainExited, evStopCmdOK, evStopCmdFailed, evEmpty, evEmptyAgain},
	ready:     {evPrepared, evPrepareFailed, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evMainExited, evStopCmdOK, evStopCmdFailed, evDeadline, evEmpty, evEmptyAgain},
	// The main process is watched once it is running.
	starting: {evPrepared, evPrepareFailed, evStart, evAlive, evNotAlive, evMainExited, evStopCmdOK, evStopCmdFailed, evEmpty, evEmptyAgain},
	settling: {evPrepared, evPrepareFailed, evStart, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evStopCmdOK, evStopCmdFailed, evEmpty, evEmptyAgain},
	running:  {evPrepared, evPrepareFailed, evStart, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evStopCmdOK, evStopCmdFailed, evEmpty, evEmptyAgain},
	// On the way down, what the start and stop commands say comes too late.
	stopping:    {evPrepared, evPrepareFailed, evStart, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive},
	terminating: {evPrepared, evPrepareFailed, evStart, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evStopCmdOK, evStopCmdFailed},
	draining:    {evPrepared, evPrepareFailed, evStart, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evMainExited, evStopCmdOK, evStopCmdFailed},
	killing:     {evPrepared, evPrepareFailed, evStart, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evStopByCommand, evStop, evKill, evStopCmdOK, evStopCmdFailed},
	// It is over.
	ended:   {evPrepared, evPrepareFailed, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evMainExited, evStopByCommand, evStop, evKill, evStopCmdOK, evStopCmdFailed, evDeadline, evEmpty, evEmptyAgain},
	deleted: {evPrepared, evPrepareFailed, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed, evAlive, evNotAlive, evMainExited, evStopByCommand, evStop, evKill, evStopCmdOK, evStopCmdFailed, evDeadline, evEmpty, evEmptyAgain},
}

// TestEveryCell walks the whole table: each cell is a transition to a known
// state, a refusal with a reason, or on the list of those ignored; never two of these.
func TestEveryCell(t *testing.T) {
	t.Parallel()
	isEvent, isState := map[event]bool{}, map[protocol.State]bool{}
	for _, e := range events {
		isEvent[e] = true
	}
	for _, s := range states {
		isState[s] = true
	}
	for s, row := range table {
		if !isState[s] {
			t.Errorf("unlisted state %s", s)
		}
		for e := range row {
			if !isEvent[e] {
				t.Errorf("%s: unlisted event %s", s, e)
			}
		}
	}
	requests := map[event]bool{evStart: true, evStop: true, evStopByCommand: true, evKill: true, evDelete: true}
	for _, s := range states {
		ignore := map[event]bool{}
		for _, e := range ignoredCells[s] {
			ignore[e] = true
		}
		for _, e := range events {
			c, written := table[s][e]
			if written == ignore[e] {
				t.Errorf("%s × %s: in the table %v, on the list of ignored cells %v", s, e, written, ignore[e])
			}
			if !written {
				continue
			}
			switch {
			case c.refuse != "" && (c.next != "" || c.act != actNone || !requests[e]):
				t.Errorf("%s × %s: a refusal is only that, and only of a request", s, e)
			case c.refuse == "" && !isState[c.next]:
				t.Errorf("%s × %s: unknown next state %q", s, e, c.next)
			case c.next == ended && s != preparing && s != ready && e != evEmpty:
				t.Errorf("%s × %s: a task that may have run ends only when it is empty", s, e)
			case c.next == deleted && s != deleted && e != evDelete:
				t.Errorf("%s × %s: only a request deletes", s, e)
			}
		}
	}
}

// TestEveryStateEnds proves that stopping always comes to an end: from each
// state in which something can run, deadlines alone lead to a kill.
func TestEveryStateEnds(t *testing.T) {
	t.Parallel()
	for _, s := range []protocol.State{stopping, terminating, draining} {
		seen := map[protocol.State]bool{}
		for at := s; at != killing; {
			if deadlineOf[at] == "" || seen[at] {
				t.Fatalf("from %s: stuck in %s", s, at)
			}
			seen[at] = true
			at = lookup(at, evDeadline).next
		}
	}
	for s := range pollsEmpty {
		if lookup(s, evEmpty).next != ended {
			t.Errorf("%s: empty does not end it", s)
		}
	}
	for _, s := range states {
		if r := (&record{State: s, PrepareBy: 1, StartBy: 1, AliveBy: 1, TermAt: 1, KillAt: 1, KillAgainAt: 1}); (r.deadline() != 0) != (deadlineOf[s] != "") {
			t.Errorf("%s: deadline %d, table %q", s, r.deadline(), deadlineOf[s])
		}
	}
}

// TestStopIsLegalInEveryState: no state refuses to be stopped, and every state from which
// it has an effect has a deadline on its way down, or needs none.
func TestStopIsLegalInEveryState(t *testing.T) {
	t.Parallel()
	for _, s := range states {
		for _, e := range []event{evStop, evStopByCommand, evKill} {
			c := lookup(s, e)
			if c.refuse != "" {
				t.Errorf("%s × %s: refused: %s", s, e, c.refuse)
			}
			if !c.ignore && c.next != ended && deadlineOf[c.next] == "" {
				t.Errorf("%s × %s: %s has no deadline", s, e, c.next)
			}
		}
	}
	for _, s := range states {
		// So does running, once the grace of a start with a pid file is over.
		waitsForOwner := s == ready || s == ended || s == deleted
		if waitsForOwner == (deadlineOf[s] != "") {
			t.Errorf("%s: deadline %q", s, deadlineOf[s])
		}
	}
}

var update = flag.Bool("update", false, "rewrite the table in README.md")

// TestReadmeTable keeps the table in README.md equal to the code's.
func TestReadmeTable(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- states: begin -->\n", "<!-- states: end -->"
	text := read(t, "README.md")
	head, rest, ok1 := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("README.md has no markers for the table")
	}
	want := head + begin + renderTable() + end + tail
	if text == want {
		return
	}
	if !*update {
		t.Fatal("the table in README.md is not that of the code: go test ./processdaemon -run TestReadmeTable -update")
	}
	if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func renderTable() string {
	var b strings.Builder
	b.WriteString("| state | event | next | what is done | deadline of the next state |\n|---|---|---|---|---|\n")
	for _, s := range states {
		for _, e := range events {
			c, ok := table[s][e]
			switch {
			case !ok:
			case c.refuse != "":
				fmt.Fprintf(&b, "| %s | %s | - | refused: %s | |\n", s, e, c.refuse)
			default:
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s, e, c.next, c.act, deadlineOf[c.next])
			}
		}
	}
	return b.String()
}
