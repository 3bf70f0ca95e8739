package ssl

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"tandem/localmesos/internal/ssl/ssltest"
)

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	vars := FromEnvironment([]string{"SSL_ENABLED=1", "SSL_CERT_FILE=/old", "LIBPROCESS_SSL_CERT_FILE=/new", "PATH=/bin", "SSL_KEY_FILE=/key"})
	if !Enabled(vars) || vars["LIBPROCESS_SSL_CERT_FILE"] != "/new" || vars["LIBPROCESS_SSL_KEY_FILE"] != "/key" || len(vars) != 3 {
		t.Errorf("%v", vars)
	}
	for _, off := range [][]string{nil, {"LIBPROCESS_SSL_ENABLED=0"}, {"LIBPROCESS_SSL_ENABLED=false"}, {"LIBPROCESS_SSL_KEY_FILE=/key"}} {
		if vars := FromEnvironment(off); vars != nil {
			t.Errorf("%v: %v", off, vars)
		}
	}
	if s, err := Server(nil); s != nil || err != nil {
		t.Errorf("%v %v", s, err)
	}
	if c, err := Client(nil); c != nil || err != nil {
		t.Errorf("%v %v", c, err)
	}
}

func TestForExecutors(t *testing.T) {
	t.Parallel()
	names := func(vars map[string]string) string {
		var out []string
		for name := range ForExecutors(vars) {
			out = append(out, strings.TrimPrefix(name, prefix))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	vars := ssltest.Certificate(t)
	vars[prefix+"CIPHERS"] = "x"
	if got := names(vars); got != "CA_FILE ENABLED" {
		t.Error(got)
	}
	vars[prefix+"REQUIRE_CERT"] = "true"
	if got := names(vars); got != "CA_FILE CERT_FILE ENABLED KEY_FILE" {
		t.Error(got)
	}
	if got := names(nil); got != "" {
		t.Error(got)
	}
}

// A client knows its server, unless it is told not to look.
func TestWhoIsTrusted(t *testing.T) {
	t.Parallel()
	vars := ssltest.Certificate(t)
	config, err := Server(vars)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = config
	s.StartTLS()
	defer s.Close()
	for name, c := range map[string]struct {
		vars map[string]string
		good bool
	}{
		"its authority":  {map[string]string{prefix + "ENABLED": "1", prefix + "CA_FILE": vars[prefix+"CA_FILE"]}, true},
		"another one":    {map[string]string{prefix + "ENABLED": "1", prefix + "CA_FILE": ssltest.Certificate(t)[prefix+"CA_FILE"]}, false},
		"the system's":   {map[string]string{prefix + "ENABLED": "1"}, false},
		"not looked at":  {map[string]string{prefix + "ENABLED": "1", prefix + "VERIFY_SERVER_CERT": "false"}, true},
		"the older name": {map[string]string{prefix + "ENABLED": "1", prefix + "VERIFY_CERT": "0"}, true},
	} {
		config, err := Client(c.vars)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		resp, err := client.Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		client.CloseIdleConnections()
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
