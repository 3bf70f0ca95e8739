package calls

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	"tandem/internal/failpoint"
)

func TestName(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v1.41/containers/create": "POST containers/create", "/v1.51/containers/4f1c/start": "POST containers/start",
		"/v1.41/images/a/b:c/json": "POST images/json", "/_ping": "POST _ping", "/v1/tasks/a%2Fb": "POST tasks", "/v1/tasks/x/stop": "POST tasks/stop",
	} {
		if got := Name(httptest.NewRequest(http.MethodPost, path+"?q=1", nil)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestNothingIsAddedUnlessArmed(t *testing.T) {
	if rt := Transport("x", http.DefaultTransport); rt != http.DefaultTransport {
		t.Error("a transport was wrapped")
	}
}

func TestPointsAroundCalls(t *testing.T) {
	trail := filepath.Join(t.TempDir(), "trail")
	failpoint.ForTest(t, "*=record("+trail+");client/DELETE things=error(broken)")
	served := 0
	s := httptest.NewServer(Handler("server", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })))
	defer s.Close()
	c := http.Client{Transport: Transport("client", http.DefaultTransport)}
	defer c.CloseIdleConnections()
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/v1/things/7", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if (err == nil) != (method == http.MethodPost) {
			t.Errorf("%s: %v", method, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
	got, err := failpoint.Trail(trail)
	if err != nil || served != 1 {
		t.Fatal(served, err)
	}
	for _, name := range []string{"client/POST things", "server/POST things", "server/POST things/done", "client/POST things/answered", "client/DELETE things"} {
		if !slices.Contains(got, failpoint.Pass{Name: name, N: 1}) {
			t.Errorf("%s is not in %v", name, got)
		}
	}
	if len(got) != 5 {
		t.Errorf("trail %v", got)
	}
}
