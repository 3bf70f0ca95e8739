package agent

import (
	"encoding/json"
	"io"
	"net/http"

	"tandem/localmesos/internal/wire"
)

// operatorAPI answers the few calls of the v1 operator API that need no more
// than the agent's own description.
func (a *Agent) operatorAPI(w http.ResponseWriter, r *http.Request) {
	if e := wire.Method(r); e != nil {
		e.Write(w)
		return
	}
	mt, e := wire.RequestType(r.Header)
	if e != nil {
		e.Write(w)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxBody))
	if err != nil {
		wire.Text(w, http.StatusBadRequest, "Failed to read the body: "+err.Error())
		return
	}
	var call struct {
		Type string `json:"type"`
	}
	if mt != wire.JSON {
		wire.Text(w, http.StatusNotImplemented, "501 Not Implemented.")
		return
	}
	if err := json.Unmarshal(body, &call); err != nil {
		wire.Text(w, http.StatusBadRequest, "Failed to parse body into JSON: syntax error at line 1 near: ")
		return
	}
	switch call.Type {
	case "GET_HEALTH":
		writeJSON(w, r, map[string]any{"type": call.Type, "get_health": map[string]any{"healthy": true}})
	case "GET_VERSION":
		v := versionJSON()
		writeJSON(w, r, map[string]any{"type": call.Type, "get_version": map[string]any{"version_info": v}})
	case "GET_AGENT":
		var info json.RawMessage
		if !a.loop.do(r.Context(), func() { info, err = wire.MarshalJSON(&a.info) }) || err != nil {
			wire.Text(w, http.StatusServiceUnavailable, "The agent is ending.")
			return
		}
		writeJSON(w, r, map[string]any{"type": call.Type, "get_agent": map[string]any{"agent_info": info}})
	case "":
		wire.Text(w, http.StatusBadRequest, "Failed to validate agent::Call: Expecting 'type' to be present")
	default:
		wire.Text(w, http.StatusNotImplemented, "501 Not Implemented.")
	}
}
