package master

import (
	"net/http"
	"strconv"

	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/wire"
)

// serveOperator is /api/v1, and all below it that has no handler of its own. The
// order of the checks is that of Mesos: method, types, form, call, Accept.
func (m *Master) serveOperator(w http.ResponseWriter, r *http.Request) {
	var call apimaster.Call
	present, e := wire.ReadCall(w, r, &call)
	if e == nil {
		e = validateOperatorCall(&call, present)
	}
	if e != nil {
		e.Write(w)
		return
	}
	mt, e := wire.ResponseType(r.Header)
	if e != nil {
		e.Write(w)
		return
	}
	read, act := readers[call.Type], actors[call.Type]
	switch {
	case call.Type == apimaster.Call_SUBSCRIBE:
		m.serveEvents(w, r, mt)
	case read != nil:
		var response *apimaster.Response
		if !m.loop.do(func() { response = read(m) }) {
			wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
			return
		}
		writeOperator(w, mt, response)
	case act != nil:
		if !m.loop.do(func() { e = act(m, &call) }) {
			wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
			return
		}
		writeDone(w, e)
	case call.Type == apimaster.Call_LIST_FILES, call.Type == apimaster.Call_READ_FILE:
		// Apache Mesos attaches its log only, and that only with --log_dir.
		wire.Text(w, http.StatusNotFound, "")
	default:
		notImplemented(w, unsupportedCalls[call.Type])
	}
}

// writeDone answers a call that has no response of its own.
func writeDone(w http.ResponseWriter, e *wire.Error) {
	if e != nil {
		e.Write(w)
		return
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

// notImplemented answers 501 with what the master does not have, in words for people.
func notImplemented(w http.ResponseWriter, why string) {
	text := "501 Not Implemented."
	if why != "" {
		text += " The embedded master " + why + "; run Apache Mesos for that."
	}
	wire.Text(w, http.StatusNotImplemented, text)
}

func writeOperator(w http.ResponseWriter, mt wire.MediaType, response *apimaster.Response) {
	var b []byte
	var err error
	if mt == wire.JSON {
		b, err = operatorJSON(response)
	} else {
		b, err = wire.Marshal(mt, response)
	}
	if err != nil {
		wire.Text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", string(mt))
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b)
}

// Why calls are not supported.
const (
	noReservations = "makes no reservations and no volumes"
	noMaintenance  = "has no maintenance"
	noDraining     = "does not drain or deactivate agents"
	noQuotas       = "has no quotas"
)

// unsupportedCalls are those that are refused, each with the reason.
var unsupportedCalls = map[apimaster.Call_Type]string{
	apimaster.Call_SET_LOGGING_LEVEL:           "logs as its own flags say",
	apimaster.Call_RESERVE_RESOURCES:           noReservations,
	apimaster.Call_UNRESERVE_RESOURCES:         noReservations,
	apimaster.Call_CREATE_VOLUMES:              noReservations,
	apimaster.Call_DESTROY_VOLUMES:             noReservations,
	apimaster.Call_GROW_VOLUME:                 noReservations,
	apimaster.Call_SHRINK_VOLUME:               noReservations,
	apimaster.Call_UPDATE_MAINTENANCE_SCHEDULE: noMaintenance,
	apimaster.Call_START_MAINTENANCE:           noMaintenance,
	apimaster.Call_STOP_MAINTENANCE:            noMaintenance,
	apimaster.Call_DRAIN_AGENT:                 noDraining,
	apimaster.Call_DEACTIVATE_AGENT:            noDraining,
	apimaster.Call_REACTIVATE_AGENT:            noDraining,
	apimaster.Call_UPDATE_QUOTA:                noQuotas,
	apimaster.Call_SET_QUOTA:                   noQuotas,
	apimaster.Call_REMOVE_QUOTA:                noQuotas,
}

// operatorNeeds names the field that a type of call must have.
var operatorNeeds = map[apimaster.Call_Type]string{
	apimaster.Call_GET_METRICS:                 "get_metrics",
	apimaster.Call_SET_LOGGING_LEVEL:           "set_logging_level",
	apimaster.Call_LIST_FILES:                  "list_files",
	apimaster.Call_READ_FILE:                   "read_file",
	apimaster.Call_UPDATE_WEIGHTS:              "update_weights",
	apimaster.Call_RESERVE_RESOURCES:           "reserve_resources",
	apimaster.Call_UNRESERVE_RESOURCES:         "unreserve_resources",
	apimaster.Call_CREATE_VOLUMES:              "create_volumes",
	apimaster.Call_DESTROY_VOLUMES:             "destroy_volumes",
	apimaster.Call_GROW_VOLUME:                 "grow_volume",
	apimaster.Call_SHRINK_VOLUME:               "shrink_volume",
	apimaster.Call_UPDATE_MAINTENANCE_SCHEDULE: "update_maintenance_schedule",
	apimaster.Call_START_MAINTENANCE:           "start_maintenance",
	apimaster.Call_STOP_MAINTENANCE:            "stop_maintenance",
	apimaster.Call_DRAIN_AGENT:                 "drain_agent",
	apimaster.Call_DEACTIVATE_AGENT:            "deactivate_agent",
	apimaster.Call_REACTIVATE_AGENT:            "reactivate_agent",
	apimaster.Call_UPDATE_QUOTA:                "update_quota",
	apimaster.Call_SET_QUOTA:                   "set_quota",
	apimaster.Call_REMOVE_QUOTA:                "remove_quota",
	apimaster.Call_TEARDOWN:                    "teardown",
	apimaster.Call_MARK_AGENT_GONE:             "mark_agent_gone",
}

// validateOperatorCall checks that a call has what its type needs; the words are Mesos's.
func validateOperatorCall(c *apimaster.Call, present wire.Present) *wire.Error {
	field := "type"
	if present[field] {
		field = operatorNeeds[c.Type]
	}
	if field != "" && !present[field] {
		return wire.Errorf(http.StatusBadRequest, "Failed to validate master::Call: Expecting '%s' to be present", field)
	}
	return nil
}
