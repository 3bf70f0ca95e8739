package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"tandem/localmesos/internal/wire"
)

// tokens issues and checks the tokens by which executors prove who they are: a
// JWT (RFC 7519) signed by HMAC with SHA-256, with the claims fid (framework), eid
// (executor) and cid (container). See docs/authentication.md of Apache Mesos. A nil
// *tokens issues none and lets everybody in.
type tokens struct {
	key []byte
	// required refuses calls without a token.
	required bool
}

// tokenVariable is where an executor finds its token.
const tokenVariable = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN"

// executorRealm is Apache Mesos's name for what executors authenticate to.
const executorRealm = "mesos-agent-executor"

// newTokens reads the key. The text of a key is never part of an error.
func newTokens(f Flags) (*tokens, error) {
	if f.JWTSecretKey == "" {
		if f.AuthenticateHTTPExecutors {
			return nil, errors.New("jwt_secret_key: missing; it must be given with authenticate_http_executors, the path of a file with a secret")
		}
		return nil, nil //nolint:nilnil // no tokens is an answer
	}
	path := strings.TrimPrefix(f.JWTSecretKey, "file://")
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("jwt_secret_key: %w; give the path of a file with a secret", err)
	}
	if len(key) == 0 {
		return nil, fmt.Errorf("jwt_secret_key: %s is empty; anybody could make tokens", path)
	}
	if st, err := os.Stat(path); err == nil && st.Mode().Perm()&0o007 != 0 && f.Logger != nil {
		f.Logger.Warn("the file with the executors' key can be used by others; give it mode 0600", "file", path, "mode", st.Mode().Perm())
	}
	return &tokens{key: key, required: f.AuthenticateHTTPExecutors}, nil
}

// issue makes the token of an executor; empty if there are none.
func (t *tokens) issue(framework, executor, container string) (string, error) {
	if t == nil {
		return "", nil
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"fid": framework, "eid": executor, "cid": container}).SignedString(t.key)
	if err != nil {
		return "", fmt.Errorf("making the executor's token: %w", err)
	}
	return text, nil
}

// claims are those of a checked token; nil is a caller who needs none.
type claims map[string]any

// authenticate checks the header of a request. problem is the answer's
// WWW-Authenticate when it is refused.
func (t *tokens) authenticate(h http.Header) (c claims, problem string) {
	if t == nil || !t.required {
		return nil, ""
	}
	challenge := fmt.Sprintf("Bearer realm=%q", executorRealm)
	header := h.Get("Authorization")
	if header == "" {
		// RFC 6750, section 3.1: who says nothing is told nothing.
		return nil, challenge
	}
	refuse := func(format string, args ...any) (claims, string) {
		text := strings.NewReplacer(`"`, "'", `\`, "/").Replace(fmt.Sprintf(format, args...))
		return nil, fmt.Sprintf(`%s, error="invalid_token", error_description="%s"`, challenge, text)
	}
	parts := strings.Split(header, " ")
	if len(parts) != 2 {
		return refuse("Malformed 'Authorization' header")
	}
	if parts[0] != "Bearer" {
		return refuse("Scheme '%.20q' unsupported", parts[0])
	}
	parsed, err := jwt.Parse(parts[1], func(*jwt.Token) (any, error) { return t.key, nil }, jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}))
	if err != nil {
		return refuse("Invalid JWT: %v", err)
	}
	m, _ := parsed.Claims.(jwt.MapClaims)
	if len(m) == 0 {
		return refuse("JWT claims missing")
	}
	return claims(m), ""
}

// mayActFor checks that the caller is the executor that it names.
func (c claims) mayActFor(e *executor) error {
	if c == nil {
		return nil
	}
	for _, claim := range []struct{ name, want, text string }{
		{"fid", e.fw.id, "an 'fid' claim with the framework ID " + e.fw.id + ", which is set in the call"},
		{"eid", e.id, "an 'eid' claim with the executor ID " + e.id + ", which is set in the call"},
		{"cid", e.run.Container, "a 'cid' claim with the correct active ContainerID"},
	} {
		if c[claim.name] != claim.want {
			return fmt.Errorf("Authenticated principal does not contain %s", claim.text) //nolint:staticcheck // Mesos's wording
		}
	}
	return nil
}

func unauthorized(w http.ResponseWriter, challenge string) {
	w.Header().Set("WWW-Authenticate", challenge)
	wire.Text(w, http.StatusUnauthorized, "401 Unauthorized.")
}
