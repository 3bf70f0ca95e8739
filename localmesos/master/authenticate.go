package master

import (
	"errors"
	"fmt"
	"net/http"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/credentials"
	"tandem/localmesos/internal/wire"
)

// basicAuthenticator is the one that Apache Mesos brings for frameworks.
const basicAuthenticator = "basic"

// schedulerRealm is Apache Mesos's name for what frameworks authenticate to.
const schedulerRealm = "mesos-master-scheduler"

// readCredentials returns those of frameworks, or nil if none have to give any.
func readCredentials(f Flags) (*credentials.List, error) {
	var list *credentials.List
	if f.Credentials != "" {
		var open bool
		var err error
		if list, open, err = credentials.Read(f.Credentials); err != nil {
			return nil, fmt.Errorf("mesos master: --credentials: %w", err)
		}
		if open {
			f.Logger.Warn("the credentials file can be used by others; give it mode 0600", "file", f.Credentials)
		}
	}
	if !f.AuthenticateHTTPFrameworks {
		return nil, nil //nolint:nilnil // nobody is asked
	}
	return list, nil
}

// validateAuthentication checks that the flags of authentication go together.
func (f Flags) validateAuthentication() error {
	switch {
	case f.HTTPFrameworkAuthenticators != "" && f.HTTPFrameworkAuthenticators != basicAuthenticator:
		return fmt.Errorf("--http_framework_authenticators=%q is unknown: there is %s, and no module can be loaded", f.HTTPFrameworkAuthenticators, basicAuthenticator)
	case !f.AuthenticateHTTPFrameworks:
		return nil
	case f.HTTPFrameworkAuthenticators == "":
		return fmt.Errorf("missing --http_framework_authenticators: it must be given with --authenticate_http_frameworks; use %s", basicAuthenticator)
	case f.Credentials == "":
		return errors.New("no credentials for the basic HTTP authenticator: give a file with --credentials")
	}
	return nil
}

// authenticate returns the principal that makes a call of a framework; nil if
// nobody is asked. Without a good one it answers and returns false.
func (m *Master) authenticate(w http.ResponseWriter, r *http.Request) (*string, bool) {
	if m.credentials == nil {
		return nil, true
	}
	principal, ok := m.credentials.Check(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", `Basic realm="`+schedulerRealm+`"`)
		wire.Text(w, http.StatusUnauthorized, "401 Unauthorized.")
		return nil, false
	}
	return &principal, true
}

// checkPrincipal compares who calls with whom a FrameworkInfo names; nil stands for nobody in particular.
func checkPrincipal(principal *string, info mesos.FrameworkInfo) error {
	if principal == nil || *principal == info.GetPrincipal() {
		return nil
	}
	return mesosError("Authenticated principal '" + *principal + "' does not match principal '" + info.GetPrincipal() + "' set in `FrameworkInfo`")
}

// samePrincipal tells whether a framework that is known may have this information.
func samePrincipal(before, now mesos.FrameworkInfo) error {
	if (before.Principal == nil) == (now.Principal == nil) && before.GetPrincipal() == now.GetPrincipal() {
		return nil
	}
	return mesosError("Changing framework's principal is not allowed.")
}
