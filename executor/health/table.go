package health

// state is what is known by one check.
type state uint8

const (
	// unknown: the check has told nothing yet, or failures that do not count.
	unknown state = iota
	healthy
	unhealthy
	// dead: the task is to end because of this check.
	dead

	stateCount
)

// event is what can come of a check.
type event uint8

const (
	// success: the check was made and is content.
	success event = iota
	// early: it failed within the grace period and there was no success yet.
	early
	// failure: it failed, fewer times in a row than the limit.
	failure
	// limit: it failed, and that was as many times in a row as the limit says.
	limit

	eventCount
)

// action is what is done about it.
type action uint8

const (
	none action = iota
	// tell: the health of the task has changed by this check.
	tell
	// end: the task is to end.
	end
)

type cell struct {
	do   action
	next state
}

// transitions says for the kinds that have a state what follows from what. A
// liveness check tells the first failure that counts, as Mesos does, and ends the
// task at the limit; a readiness check tells at the limit. What cannot come is
// taken as what it most resembles: an early failure only comes while unknown.
var transitions = [kindCount][stateCount][eventCount]cell{
	Liveness: {
		unknown:   {success: {tell, healthy}, early: {none, unknown}, failure: {tell, unhealthy}, limit: {end, dead}},
		healthy:   {success: {none, healthy}, early: {tell, unhealthy}, failure: {tell, unhealthy}, limit: {end, dead}},
		unhealthy: {success: {tell, healthy}, early: {none, unhealthy}, failure: {none, unhealthy}, limit: {end, dead}},
		dead:      {success: {none, dead}, early: {none, dead}, failure: {none, dead}, limit: {none, dead}},
	},
	Readiness: {
		unknown:   {success: {tell, healthy}, early: {none, unknown}, failure: {none, unknown}, limit: {tell, unhealthy}},
		healthy:   {success: {none, healthy}, early: {none, healthy}, failure: {none, healthy}, limit: {tell, unhealthy}},
		unhealthy: {success: {tell, healthy}, early: {none, unhealthy}, failure: {none, unhealthy}, limit: {none, unhealthy}},
		dead:      {success: {none, dead}, early: {none, dead}, failure: {none, dead}, limit: {none, dead}},
	},
}
