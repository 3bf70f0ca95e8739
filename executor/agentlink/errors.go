package agentlink

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// StatusError is an answer other than the one that the call should have.
type StatusError struct {
	Call   string
	Status int
	// Body is what the agent said, without the token.
	Body string
	// Tokenless is set when the call went without a token.
	Tokenless bool
}

// Error names the call, the status, what the agent said, and what can be done about it.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("agent answered %s with %d %s: %s", e.Call, e.Status, http.StatusText(e.Status), e.Body)
	switch {
	case e.denied() && e.Tokenless:
		text += "; it asks for a token, and the executor was given none in MESOS_EXECUTOR_AUTHENTICATION_TOKEN:" +
			" give the agent a --jwt_secret_key, then start the taskgroup again"
	case e.denied():
		text += "; it does not accept the executor's token: if the agent now has another --jwt_secret_key, give it the earlier one back, or start the taskgroup again"
	}
	return text
}

// notSubscribed is what an agent says to an executor that has yet to subscribe.
const notSubscribed = "Executor is not subscribed"

func (e *StatusError) denied() bool {
	return e.Status == http.StatusUnauthorized ||
		e.Status == http.StatusForbidden && (e.Call == "SUBSCRIBE" || !strings.Contains(e.Body, notSubscribed))
}

// Denied reports whether err is an answer of an agent that does not accept the
// token (401), or not for this executor (403). An agent also answers 403 to a
// call of an executor that is not subscribed; that is not meant here.
func Denied(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && s.denied()
}

// Refused reports whether err is an answer that will not change by trying
// again: the agent does not know this framework or executor, does not accept
// the token, or finds the call malformed. While an agent starts or recovers it
// answers 503, and 403 while the executor is not subscribed: those are not refusals.
func Refused(err error) bool {
	var s *StatusError
	if !errors.As(err, &s) {
		return false
	}
	switch s.Status {
	case http.StatusForbidden:
		return s.denied()
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return s.Status >= 300 && s.Status < 500
}

// statusError reads the agent's text and closes the body.
func (c *Client) statusError(call string, resp *http.Response) error {
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		text = append(text, " (cut off)"...)
	}
	e := &StatusError{Call: call, Status: resp.StatusCode, Body: strings.TrimSpace(string(text))}
	token := resp.Request.Header.Get("Authorization")
	e.Tokenless = token == ""
	// An agent, or what answers in its place, may repeat what it was sent.
	if token = strings.TrimPrefix(token, "Bearer "); token != "" {
		e.Body = strings.ReplaceAll(e.Body, token, hidden)
	}
	return e
}

// advise adds to an error of TLS what an operator can do about it.
func advise(err error) error {
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unverified):
		return fmt.Errorf("%w; name the agent's authority in LIBPROCESS_SSL_CA_FILE, with a certificate for the host in MESOS_AGENT_ENDPOINT,"+
			" or set LIBPROCESS_SSL_VERIFY_SERVER_CERT=false for the executors (the agent's --executor_environment_variables)", err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w; LIBPROCESS_SSL_ENABLED is set for the executor but not for the agent", err)
	default:
		return err
	}
}
