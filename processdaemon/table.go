package processdaemon

import "tandem/processdaemon/protocol"

// event is what can happen to a task.
type event string

const (
	evPrepared       event = "prepared"        // everything was fetched and put in place
	evPrepareFailed  event = "prepare-failed"  // it could not be
	evStart          event = "start"           // a client asks for it, for the first time: a repeated request changes nothing
	evMainSpawned    event = "main-spawned"    // foreground: the main process exists
	evCommandSpawned event = "command-spawned" // pid file: the start command exists
	evSpawnFailed    event = "spawn-failed"    // neither could be made
	evCommandOK      event = "command-ok"      // the start command exited with 0
	evCommandFailed  event = "command-failed"  // it did not
	evAlive          event = "alive"           // the pid file names a live process of the task
	evNotAlive       event = "not-alive"       // it does not
	evMainExited     event = "main-exited"     // the main process ended
	evStopByCommand  event = "stop-by-command" // a client asks for the end; there is a stop command
	evStop           event = "stop"            // a client asks for the end; SIGTERM is the way
	evKill           event = "kill"            // a client asks for the end at once
	evStopCmdOK      event = "stop-cmd-ok"     // the stop command exited with 0
	evStopCmdFailed  event = "stop-cmd-failed" // it did not
	evDeadline       event = "deadline"        // the state's recorded deadline passed
	evEmpty          event = "empty"           // nothing of the task runs, and how the main process ended is recorded
	evEmptyAgain     event = "empty-again"     // as empty, and a restart was asked for
	evDelete         event = "delete"          // a client asks to forget the task
)

var events = []event{
	evPrepared, evPrepareFailed, evStart, evMainSpawned, evCommandSpawned, evSpawnFailed, evCommandOK, evCommandFailed,
	evAlive, evNotAlive, evMainExited, evStopByCommand, evStop, evKill, evStopCmdOK, evStopCmdFailed, evDeadline, evEmpty, evEmptyAgain, evDelete,
}

var states = []protocol.State{
	protocol.StatePreparing, protocol.StateReady, protocol.StateStarting, protocol.StateSettling, protocol.StateRunning,
	protocol.StateStopping, protocol.StateTerminating, protocol.StateDraining, protocol.StateKilling, protocol.StateEnded,
	protocol.StateDeleted,
}

// action is what is done after the next state was recorded.
type action string

const (
	actNone          action = ""
	actCancelPrepare action = "cancel the preparation"
	actSpawn         action = "run the start command"
	actWatchPidFile  action = "watch the pid file"
	actCheckPidFile  action = "look at the pid file"
	actStopCommand   action = "run the stop command"
	actTerm          action = "SIGTERM to all of the task"
	actTermRest      action = "SIGTERM to what has had none"
	actKillAll       action = "SIGKILL to all of the task"
	actRemove        action = "remove what is left, then the record"
)

// cell is one cell of the table: a transition, or the reason why there is none.
type cell struct {
	next protocol.State
	act  action
	// refuse is the answer to a client whose request is not legal in this state.
	refuse string
	// ignore tells that the event changes nothing; it comes late, or twice.
	ignore bool
}

func to(next protocol.State, act action) cell { return cell{next: next, act: act} }
func refuse(why string) cell                  { return cell{refuse: why} }

var ignored = cell{ignore: true}

const (
	preparing   = protocol.StatePreparing
	ready       = protocol.StateReady
	starting    = protocol.StateStarting
	settling    = protocol.StateSettling
	running     = protocol.StateRunning
	stopping    = protocol.StateStopping
	terminating = protocol.StateTerminating
	draining    = protocol.StateDraining
	killing     = protocol.StateKilling
	ended       = protocol.StateEnded
	deleted     = protocol.StateDeleted
)

const (
	refuseRunning = "it is not stopped; stop it first and wait for its end"
)

// table is the life of a task. A cell that is not written here is ignored; the
// test that walks all cells holds the list of those.
var table = map[protocol.State]map[event]cell{
	preparing: {
		evPrepared:      to(ready, actNone),
		evPrepareFailed: to(ended, actNone),
		evStart:         refuse("it is still being prepared; wait until it is ready"),
		evStopByCommand: to(ended, actCancelPrepare),
		evStop:          to(ended, actCancelPrepare),
		evKill:          to(ended, actCancelPrepare),
		evDeadline:      to(ended, actCancelPrepare),
		evDelete:        to(deleted, actRemove),
	},
	ready: {
		evStart:         to(starting, actSpawn),
		evStopByCommand: to(ended, actNone),
		evStop:          to(ended, actNone),
		evKill:          to(ended, actNone),
		evDelete:        to(deleted, actRemove),
	},
	starting: {
		evMainSpawned:    to(running, actNone),
		evCommandSpawned: to(starting, actNone),
		evSpawnFailed:    to(killing, actKillAll),
		evCommandOK:      to(settling, actWatchPidFile),
		evCommandFailed:  to(killing, actKillAll),
		evStopByCommand:  to(terminating, actTerm),
		evStop:           to(terminating, actTerm),
		evKill:           to(killing, actKillAll),
		evDeadline:       to(killing, actKillAll),
		evDelete:         refuse(refuseRunning),
	},
	settling: {
		evDeadline:      to(settling, actCheckPidFile),
		evAlive:         to(running, actNone),
		evNotAlive:      to(killing, actKillAll),
		evMainExited:    to(killing, actKillAll),
		evStopByCommand: to(stopping, actStopCommand),
		evStop:          to(terminating, actTerm),
		evKill:          to(killing, actKillAll),
		evDelete:        refuse(refuseRunning),
	},
	running: {
		evDeadline:      to(running, actCheckPidFile),
		evMainExited:    to(killing, actKillAll),
		evStopByCommand: to(stopping, actStopCommand),
		evStop:          to(terminating, actTerm),
		evKill:          to(killing, actKillAll),
		evDelete:        refuse(refuseRunning),
	},
	stopping: {
		evMainExited:    to(draining, actTermRest),
		evStopByCommand: to(stopping, actNone),
		evStop:          to(stopping, actNone),
		evKill:          to(killing, actKillAll),
		evStopCmdOK:     to(stopping, actNone),
		evStopCmdFailed: to(terminating, actTerm),
		evDeadline:      to(terminating, actTerm),
		evEmpty:         to(ended, actNone),
		evEmptyAgain:    to(starting, actSpawn),
		evDelete:        refuse(refuseRunning),
	},
	terminating: {
		evMainExited:    to(draining, actTermRest),
		evStopByCommand: to(terminating, actNone),
		evStop:          to(terminating, actNone),
		evKill:          to(killing, actKillAll),
		evDeadline:      to(killing, actKillAll),
		evEmpty:         to(ended, actNone),
		evEmptyAgain:    to(starting, actSpawn),
		evDelete:        refuse(refuseRunning),
	},
	draining: {
		evStopByCommand: to(draining, actNone),
		evStop:          to(draining, actNone),
		evKill:          to(killing, actKillAll),
		evDeadline:      to(killing, actKillAll),
		evEmpty:         to(ended, actNone),
		evEmptyAgain:    to(starting, actSpawn),
		evDelete:        refuse(refuseRunning),
	},
	killing: {
		evMainExited: to(killing, actNone),
		evDeadline:   to(killing, actKillAll),
		evEmpty:      to(ended, actNone),
		evEmptyAgain: to(starting, actSpawn),
		evDelete:     refuse(refuseRunning),
	},
	ended: {
		evStart:  refuse("it was stopped before it was started; create a new one"),
		evDelete: to(deleted, actRemove),
	},
	deleted: {
		evStart: refuse("it is being deleted"),
		// A deletion that failed, for lack of disk space say, can be asked for again.
		evDelete: to(deleted, actRemove),
	},
}

// lookup returns the cell for an event in a state.
func lookup(s protocol.State, e event) cell {
	c, ok := table[s][e]
	if !ok {
		return ignored
	}
	return c
}

// deadlineOf names the recorded deadline that holds in a state. Those that are not here
// wait for their owner, whose lease is their end, and so does running once the grace
// of a start with a pid file is over.
var deadlineOf = map[protocol.State]string{
	preparing:   "prepareBy",
	starting:    "startBy",
	settling:    "aliveBy",
	running:     "aliveBy",
	stopping:    "termAt",
	terminating: "killAt",
	draining:    "killAt",
	killing:     "killAgainAt",
}

// pollsEmpty are the states in which the loop looks whether the task is empty.
var pollsEmpty = map[protocol.State]bool{stopping: true, terminating: true, draining: true, killing: true}
