package mesos

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// A master that is compromised, or that the operator forgot, must not get what is for the ones with a certificate.
func TestLeaderByPlainHTTPIsNotFollowedFromHTTPS(t *testing.T) {
	t.Parallel()
	plain := newFakeMaster(t)
	asked := make(chan string, 1000)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, secret, _ := r.BasicAuth()
		asked <- principal + ":" + secret
		w.Header().Set("Location", plain.url().String()+schedulerPath)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	t.Cleanup(secure.Close)
	base, err := url.Parse(secure.URL)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	start(t, Config{Masters: []*url.URL{base}, Principal: "p", Secret: "hush", TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
	for range 3 {
		if got := next(t, asked, "SUBSCRIBE"); got != "p:hush" {
			t.Errorf("credentials %q", got)
		}
	}
	select {
	case <-plain.subscribes:
		t.Error("the credentials went on by plain HTTP")
	default:
	}
}

func TestRefusedCredentialsAreExplained(t *testing.T) {
	t.Parallel()
	err := error(&statusError{code: http.StatusUnauthorized, text: "401 Unauthorized."})
	if !strings.Contains(err.Error(), "--secret-file") {
		t.Errorf("error %v lacks the remedy", err)
	}
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = newTransport(nil, "", "").subscribe(t.Context(), base, &scheduler.Call{Type: scheduler.Call_REVIVE})
	if err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("error %v of a master that is not trusted lacks the remedy", err)
	}
}
