package agent

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// call makes an executor call with a header Authorization.
func call(t *testing.T, a *Agent, body, authorization string) (int, string) {
	t.Helper()
	resp := callRaw(t, a, body, authorization)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func callRaw(t *testing.T, a *Agent, body, authorization string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, a.URL()+"/api/v1/executor", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func withKey(t *testing.T, f *Flags) {
	t.Helper()
	f.JWTSecretKey, f.AuthenticateHTTPExecutors = filepath.Join(t.TempDir(), "key"), true
	if err := os.WriteFile(f.JWTSecretKey, []byte("a secret of the test"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	withKey(t, &f)
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	m.running(runOf(true, "x2", "ok", "t2"))
	quiet(t, a)
	run, other := runID(a, "x1"), runID(a, "x2")
	sign := func(method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
		text, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + text
	}
	key := []byte("a secret of the test")
	good := jwt.MapClaims{"fid": "f1", "eid": "x1", "cid": run.Container}
	message := `{"type":"MESSAGE","framework_id":{"value":"f1"},"executor_id":{"value":"x1"},"message":{"data":"YQ=="}}`
	const invalid = `Bearer realm="mesos-agent-executor", error="invalid_token", error_description="`
	for name, c := range map[string]struct {
		authorization, challenge, body string
		status                         int
	}{
		"none":         {challenge: `Bearer realm="mesos-agent-executor"`, body: "401 Unauthorized.", status: 401},
		"good":         {authorization: sign(jwt.SigningMethodHS256, key, good), status: 202},
		"malformed":    {authorization: "Bearer a b", challenge: invalid + `Malformed 'Authorization' header"`, body: "401 Unauthorized.", status: 401},
		"scheme":       {authorization: "Basic YTpi", challenge: invalid + `Scheme ''Basic'' unsupported"`, status: 401},
		"no token":     {authorization: "Bearer x.y.z", challenge: invalid + "Invalid JWT: ", status: 401},
		"other key":    {authorization: sign(jwt.SigningMethodHS256, []byte("another"), good), challenge: invalid + "Invalid JWT: ", status: 401},
		"other method": {authorization: sign(jwt.SigningMethodHS512, key, good), challenge: invalid + "Invalid JWT: ", status: 401},
		"unsigned":     {authorization: sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good), challenge: invalid + "Invalid JWT: ", status: 401},
		"expired": {authorization: sign(jwt.SigningMethodHS256, key, jwt.MapClaims{"fid": "f1", "eid": "x1", "cid": run.Container, "exp": 1}),
			challenge: invalid + "Invalid JWT: ", status: 401},
		"no claims":       {authorization: sign(jwt.SigningMethodHS256, key, jwt.MapClaims{}), challenge: invalid + `JWT claims missing"`, status: 401},
		"other framework": {authorization: sign(jwt.SigningMethodHS256, key, jwt.MapClaims{"fid": "f2", "eid": "x1", "cid": run.Container}), body: "'fid' claim", status: 403},
		"other executor":  {authorization: sign(jwt.SigningMethodHS256, key, jwt.MapClaims{"fid": "f1", "eid": "x2", "cid": other.Container}), body: "'eid' claim", status: 403},
		"other container": {authorization: sign(jwt.SigningMethodHS256, key, jwt.MapClaims{"fid": "f1", "eid": "x1", "cid": other.Container}), body: "'cid' claim", status: 403},
		"number":          {authorization: sign(jwt.SigningMethodHS256, key, jwt.MapClaims{"fid": 1}), body: "'fid' claim", status: 403},
	} {
		resp := callRaw(t, a, message, c.authorization)
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), c.challenge) || !strings.Contains(string(b), c.body) {
			t.Errorf("%s: %d %q %q", name, resp.StatusCode, resp.Header.Get("WWW-Authenticate"), b)
		}
	}
	// A wrong call is not looked at before the token is.
	if status, _ := call(t, a, "{", ""); status != http.StatusUnauthorized {
		t.Errorf("an unreadable call without a token: %d", status)
	}
	_, state := get(t, a.URL()+"/state")
	for _, secret := range []string{"eyJ", "a secret of the test"} {
		if strings.Contains(state, secret) {
			t.Errorf("/state tells %q", secret)
		}
	}
	// The executors of the tests show their token, before and after a restart.
	b := restart(t, a, nil)
	m.kill("t1")
	m.ack(m.update("t1", mesos.TASK_KILLED))
	env := fileWith(t, filepath.Join(sandboxOf(t, b, "x1"), "environment"), tokenVariable+"=")
	if strings.Contains(env, "a secret of the test") {
		t.Error("the executor has the key")
	}
}

func TestTokensWithoutNeed(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	withKey(t, &f)
	f.AuthenticateHTTPExecutors = false
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "environment"), tokenVariable+"=")
	if status, body := call(t, a, `{"type":"MESSAGE","framework_id":{"value":"f1"},"executor_id":{"value":"x1"},"message":{"data":"YQ=="}}`, ""); status != http.StatusAccepted {
		t.Errorf("%d %s", status, body)
	}
}

func TestBadKeys(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"": "jwt_secret_key: missing", "/no/such/file": "/no/such/file", empty: "is empty"} {
		f := testFlags(t, newMaster(t))
		f.AuthenticateHTTPExecutors, f.JWTSecretKey = true, path
		if _, err := New(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
