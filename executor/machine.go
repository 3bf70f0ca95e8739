package executor

import "time"

// state is where a task is on its way. Every state that waits for something has
// a deadline (see limits), so that no task can be stuck in it.
type state uint8

const (
	// stateStaged: the task is known and its group is accepted, nothing is done yet.
	stateStaged state = iota
	// statePreparing: images and archives are fetched.
	statePreparing
	// statePrepared: waits until all of its group are prepared and it is its turn.
	statePrepared
	// stateCreating: its ports are looked at and the runtime makes it.
	stateCreating
	// stateCreated: waits until all of its group are created and it is its turn.
	stateCreated
	// stateStarting: the runtime starts it.
	stateStarting
	// stateRunning: it runs; somebody waits for its end.
	stateRunning
	// stateCancelling: it must end while an earlier step has not returned yet.
	stateCancelling
	// stateStopping: the runtime ends all that runs of it.
	stateStopping
	// stateRemoving: nothing of it runs; the runtime deletes what is left.
	stateRemoving
	// stateEnded: the terminal update is made and waits for its acknowledgement.
	stateEnded
	// stateDone: the terminal update is acknowledged.
	stateDone

	stateCount
)

// event is what can happen to a task.
type event uint8

const (
	// eventGo: the group lets the task go on.
	eventGo event = iota
	// eventDone: the step that was under way has succeeded.
	eventDone
	// eventFailed: the step that was under way has failed.
	eventFailed
	// eventExited: the task has ended by itself or by our doing.
	eventExited
	// eventUnknown: the runtime cannot tell any more whether the task runs.
	eventUnknown
	// eventKill: the task is to end: KILL, SHUTDOWN, or the failure of a sibling.
	eventKill
	// eventAcknowledged: the agent has taken the terminal update.
	eventAcknowledged
	// eventDeadline: the state has lasted too long.
	eventDeadline

	eventCount
)

var stateNames = [stateCount]string{
	"staged", "preparing", "prepared", "creating", "created", "starting", "running",
	"cancelling", "stopping", "removing", "ended", "done",
}

var eventNames = [eventCount]string{
	"go", "step done", "step failed", "exited", "unknown", "kill", "acknowledged", "deadline",
}

func (s state) String() string { return stateNames[s] }
func (e event) String() string { return eventNames[e] }

// action is what the executor does on a transition.
type action uint8

const (
	// ignore: the event is legal here and changes nothing.
	ignore action = iota
	// unexpected: the event cannot come in this state; it is logged and changes nothing.
	unexpected
	// prepare, create, start: begin that step of the runtime.
	prepare
	create
	start
	// hold: remember what the step gave; the group decides when to go on.
	hold
	// run: report TASK_RUNNING and wait for the end.
	run
	// cancel: report TASK_KILLING and cancel the step that is under way.
	cancel
	// expire: as cancel, but because the state lasted too long.
	expire
	// stop: report TASK_KILLING when killed, and end all that runs.
	stop
	// failStop: remember why the task failed, and end what may run of it.
	failStop
	// hasten: stop again, with the shorter grace of the new kill.
	hasten
	// again: the same step once more, after a pause.
	again
	// note: remember how the task ended.
	note
	// remove: delete what is left.
	remove
	// failRemove: remember why the task failed, and delete what is left.
	failRemove
	// abandon: nobody could end the task; say so, and delete what can be deleted.
	abandon
	// rewait: ask the runtime again how the task ends; too many times is a kill.
	rewait
	// report: make the terminal update.
	report
	// reportLeft: as report, and log that something is left for the reaper.
	reportLeft
	// forget: the task needs nothing any more.
	forget
	// giveUp: as forget, and log that the terminal update may be lost.
	giveUp

	actionCount
)

var actionNames = [actionCount]string{
	"ignore", "unexpected", "prepare", "create", "start", "hold", "run", "cancel", "expire", "stop", "fail, stop",
	"hasten", "again", "note", "remove", "fail, remove", "abandon, remove", "ask again", "report", "report what is left", "forget", "give up",
}

func (a action) String() string { return actionNames[a] }

// step is one cell of the table.
type step struct {
	do   action
	next state
}

// transitions is the whole life of a task. Every cell is there; the rendered
// table is in README.md.
//
// An end always goes through stopping and removing, also that of a task which
// ended by itself: a process may leave children behind, and only Stop promises
// that nothing runs any more when the terminal update is sent.
var transitions = map[state]map[event]step{
	stateStaged: {
		eventGo:           {prepare, statePreparing},
		eventDone:         {unexpected, stateStaged},
		eventFailed:       {unexpected, stateStaged},
		eventExited:       {unexpected, stateStaged},
		eventUnknown:      {unexpected, stateStaged},
		eventKill:         {report, stateEnded},
		eventAcknowledged: {unexpected, stateStaged},
		eventDeadline:     {report, stateEnded},
	},
	statePreparing: {
		eventGo:           {unexpected, statePreparing},
		eventDone:         {hold, statePrepared},
		eventFailed:       {failRemove, stateRemoving},
		eventExited:       {unexpected, statePreparing},
		eventUnknown:      {unexpected, statePreparing},
		eventKill:         {cancel, stateCancelling},
		eventAcknowledged: {unexpected, statePreparing},
		eventDeadline:     {expire, stateCancelling},
	},
	statePrepared: {
		eventGo:           {create, stateCreating},
		eventDone:         {unexpected, statePrepared},
		eventFailed:       {unexpected, statePrepared},
		eventExited:       {unexpected, statePrepared},
		eventUnknown:      {unexpected, statePrepared},
		eventKill:         {remove, stateRemoving},
		eventAcknowledged: {unexpected, statePrepared},
		eventDeadline:     {failRemove, stateRemoving},
	},
	stateCreating: {
		eventGo:           {unexpected, stateCreating},
		eventDone:         {hold, stateCreated},
		eventFailed:       {failRemove, stateRemoving},
		eventExited:       {unexpected, stateCreating},
		eventUnknown:      {unexpected, stateCreating},
		eventKill:         {cancel, stateCancelling},
		eventAcknowledged: {unexpected, stateCreating},
		eventDeadline:     {expire, stateCancelling},
	},
	stateCreated: {
		eventGo:           {start, stateStarting},
		eventDone:         {unexpected, stateCreated},
		eventFailed:       {unexpected, stateCreated},
		eventExited:       {unexpected, stateCreated},
		eventUnknown:      {unexpected, stateCreated},
		eventKill:         {remove, stateRemoving},
		eventAcknowledged: {unexpected, stateCreated},
		eventDeadline:     {failRemove, stateRemoving},
	},
	stateStarting: {
		eventGo:           {unexpected, stateStarting},
		eventDone:         {run, stateRunning},
		eventFailed:       {failStop, stateStopping},
		eventExited:       {unexpected, stateStarting},
		eventUnknown:      {unexpected, stateStarting},
		eventKill:         {cancel, stateCancelling},
		eventAcknowledged: {unexpected, stateStarting},
		eventDeadline:     {expire, stateCancelling},
	},
	stateRunning: {
		eventGo:           {unexpected, stateRunning},
		eventDone:         {unexpected, stateRunning},
		eventFailed:       {unexpected, stateRunning},
		eventExited:       {stop, stateStopping},
		eventUnknown:      {rewait, stateRunning},
		eventKill:         {stop, stateStopping},
		eventAcknowledged: {unexpected, stateRunning},
		eventDeadline:     {unexpected, stateRunning},
	},
	stateCancelling: {
		eventGo:           {unexpected, stateCancelling},
		eventDone:         {stop, stateStopping},
		eventFailed:       {stop, stateStopping},
		eventExited:       {unexpected, stateCancelling},
		eventUnknown:      {unexpected, stateCancelling},
		eventKill:         {ignore, stateCancelling},
		eventAcknowledged: {unexpected, stateCancelling},
		eventDeadline:     {stop, stateStopping},
	},
	stateStopping: {
		eventGo:           {unexpected, stateStopping},
		eventDone:         {remove, stateRemoving},
		eventFailed:       {again, stateStopping},
		eventExited:       {note, stateStopping},
		eventUnknown:      {ignore, stateStopping},
		eventKill:         {hasten, stateStopping},
		eventAcknowledged: {unexpected, stateStopping},
		eventDeadline:     {abandon, stateRemoving},
	},
	stateRemoving: {
		eventGo:           {unexpected, stateRemoving},
		eventDone:         {report, stateEnded},
		eventFailed:       {again, stateRemoving},
		eventExited:       {note, stateRemoving},
		eventUnknown:      {ignore, stateRemoving},
		eventKill:         {ignore, stateRemoving},
		eventAcknowledged: {unexpected, stateRemoving},
		eventDeadline:     {reportLeft, stateEnded},
	},
	stateEnded: {
		eventGo:           {unexpected, stateEnded},
		eventDone:         {ignore, stateEnded},
		eventFailed:       {ignore, stateEnded},
		eventExited:       {ignore, stateEnded},
		eventUnknown:      {ignore, stateEnded},
		eventKill:         {ignore, stateEnded},
		eventAcknowledged: {forget, stateDone},
		eventDeadline:     {giveUp, stateDone},
	},
	stateDone: {
		eventGo:           {unexpected, stateDone},
		eventDone:         {ignore, stateDone},
		eventFailed:       {ignore, stateDone},
		eventExited:       {ignore, stateDone},
		eventUnknown:      {ignore, stateDone},
		eventKill:         {ignore, stateDone},
		eventAcknowledged: {ignore, stateDone},
		eventDeadline:     {unexpected, stateDone},
	},
}

// limits are the longest times in the states; 0 means no limit. Grace periods
// come on top where a task has them (see Executor.limit).
var limits = map[state]time.Duration{
	stateStaged: time.Minute,
	// A large image over a slow line; the runtime has its own limit for silence.
	statePreparing: time.Hour,
	// Siblings may be preparing or creating as long as they are allowed to.
	statePrepared: 2 * time.Hour,
	stateCreating: 2 * time.Minute,
	// The init tasks have their own limit, and the steps of each come on top.
	stateCreated:  initLimit + time.Hour,
	stateStarting: 2 * time.Minute,
	stateRunning:  0,
	// The step was told to return; a mute engine must not keep us from stopping.
	stateCancelling: 5 * time.Second,
	// On top of the grace period.
	stateStopping: 2 * time.Minute,
	stateRemoving: 30 * time.Second,
	stateEnded:    time.Hour,
	stateDone:     0,
}
