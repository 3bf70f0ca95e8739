package master

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

const testSecret = "kitesurf"

// credentialsFile makes a file with sherman and another principal.
func credentialsFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	const text = `{"credentials":[{"principal":"sherman","secret":"` + testSecret + `"},{"principal":"other","secret":"` + testSecret + `2"}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := startMaster(t, func(f *Flags) {
		f.Credentials, f.AuthenticateHTTPFrameworks, f.HTTPFrameworkAuthenticators = credentialsFile(t), true, "basic"
		f.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	url := m.URL() + "/api/v1/scheduler"
	header := func(authorization string) map[string]string {
		h := map[string]string{"Content-Type": "application/json", "Accept": "application/json"}
		if authorization != "" {
			h["Authorization"] = authorization
		}
		return h
	}
	const info = `"user":"u","name":"n","failover_timeout":60`
	subscription := func(more string) []byte {
		return []byte(`{"type":"SUBSCRIBE","subscribe":{"framework_info":{` + info + more + `}}}`)
	}
	for _, authorization := range []string{"", basic("sherman", "wrong"), basic("nobody", testSecret), "Bearer " + testSecret, basic("sherman", "")} {
		// Who is not known gets nothing else to know: not even 405.
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			status, body := request(t, method, url, header(authorization), string(subscription("")))
			if status != http.StatusUnauthorized || body != "401 Unauthorized." {
				t.Errorf("%s with %q: %d %s", method, authorization, status, body)
			}
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("WWW-Authenticate"); got != `Basic realm="mesos-master-scheduler"` {
		t.Errorf("WWW-Authenticate: %q", got)
	}

	sherman, other := header(basic("sherman", testSecret)), header(basic("other", testSecret+"2"))
	status, body := post(t, url, other, string(subscription(`,"principal":"sherman"`)))
	if want := "Failed to validate scheduler::Call: Authenticated principal 'other' does not match principal 'sherman' set in `FrameworkInfo`"; status != 400 || body != want {
		t.Errorf("%d %s", status, body)
	}
	// Without a principal of its own the framework gets that of who calls.
	for _, principal := range []string{"", `,"principal":"sherman"`} {
		f := &client{m: m, records: open(t, url, sherman, subscription(principal), decodeEvent(t))}
		f.id = f.next(t, "SUBSCRIBED", ofType(scheduler.Event_SUBSCRIBED)).Subscribed.FrameworkID.Value
		call := `{"type":"REVIVE","framework_id":{"value":"` + f.id + `"}}`
		as := func(h map[string]string) map[string]string {
			h["Mesos-Stream-Id"] = f.header.Get("Mesos-Stream-Id")
			return h
		}
		if status, body := post(t, url, as(header(basic("sherman", testSecret))), call); status != http.StatusAccepted {
			t.Errorf("%d %s", status, body)
		}
		want := "Authenticated principal 'other' does not match principal 'sherman' set in `FrameworkInfo`"
		if status, body := post(t, url, as(header(basic("other", testSecret+"2"))), call); status != 400 || body != want {
			t.Errorf("another's call: %d %s", status, body)
		}
		if status, _ := post(t, url, as(header("")), call); status != http.StatusUnauthorized {
			t.Errorf("a call of nobody: %d", status)
		}
		// Nobody takes over the framework of another principal.
		again := []byte(`{"type":"SUBSCRIBE","framework_id":{"value":"` + f.id + `"},"subscribe":{"framework_info":{` + info + `,"id":{"value":"` + f.id + `"}}}}`)
		thief := open(t, url, other, again, decodeEvent(t))
		if e := thief.next(t, "ERROR", ofType(scheduler.Event_ERROR)); e.Error.Message != "Changing framework's principal is not allowed." {
			t.Error(e.Error.Message)
		}
		thief.waitEnd(t)
		if status, body := post(t, url, as(header(basic("sherman", testSecret))), call); status != http.StatusAccepted {
			t.Errorf("after the attempt: %d %s", status, body)
		}
		status, body = post(t, url, as(header(basic("sherman", testSecret))), `{"type":"UPDATE_FRAMEWORK","framework_id":{"value":"`+f.id+
			`"},"update_framework":{"framework_info":{`+info+`,"id":{"value":"`+f.id+`"},"principal":"other"}}}`)
		if want := "FrameworkInfo update is not valid: Changing framework's principal is not allowed."; status != 400 || body != want {
			t.Errorf("UPDATE_FRAMEWORK: %d %s", status, body)
		}
	}
	// Tools need no credentials, and find no secret.
	for _, path := range []string{"/flags", "/state", "/frameworks"} {
		status, body := request(t, http.MethodGet, m.URL()+path, nil, "")
		if status != 200 || strings.Contains(body, testSecret) || path == "/flags" && !strings.Contains(body, `"authenticate_http_frameworks":"true"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	m.Close()
	if strings.Contains(log.String(), testSecret) || !strings.Contains(log.String(), "another principal") {
		t.Error(log.String())
	}
}

func TestAuthenticationFlags(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("one two three "+testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	good := credentialsFile(t)
	for _, c := range []struct {
		flags Flags
		want  string
	}{
		{Flags{AuthenticateHTTPFrameworks: true, Credentials: good}, "--http_framework_authenticators"},
		{Flags{AuthenticateHTTPFrameworks: true, HTTPFrameworkAuthenticators: "basic"}, "--credentials"},
		{Flags{AuthenticateHTTPFrameworks: true, HTTPFrameworkAuthenticators: "org_module", Credentials: good}, "org_module"},
		{Flags{Credentials: bad}, "line 1 is not a principal"},
		{Flags{Credentials: "/nonexistent/credentials"}, "/nonexistent/credentials"},
		{Flags{Leader: "host"}, `--leader="host"`},
		{Flags{Leader: "host:0"}, `--leader="host:0"`},
	} {
		c.flags.Registry = RegistryInMemory
		m, err := New(c.flags)
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), testSecret) {
			t.Errorf("%+v: %v, want %s", c.flags, err, c.want)
		}
	}
	// A file that is not used yet must be right, and asks nobody for anything.
	m := startMaster(t, func(f *Flags) { f.Credentials, f.HTTPFrameworkAuthenticators = good, "basic" })
	subscribe(t, m, "", multiRole)
}
