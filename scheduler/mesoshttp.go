package scheduler

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"
)

// plainHTTP is the client of a cluster without TLS.
var plainHTTP = newMesosHTTP(nil)

// newMesosHTTP makes a client for what agents and masters answer beside the
// scheduler API: they are asked directly, whatever proxy the environment names.
func newMesosHTTP(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSClientConfig:     config,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > 5 {
				return errors.New("more than 5 redirects")
			}
			if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
				return errors.New("redirect from https to " + req.URL.Scheme + ", which the credentials must not follow")
			}
			return nil
		},
	}
}

func clientOr(c *http.Client) *http.Client {
	if c == nil {
		return plainHTTP
	}
	return c
}

// agentURL is an agent's base URL. Masters name http for every agent, also
// where master and agents speak TLS only; there it is https.
func (s *Scheduler) agentURL(url string) string {
	if rest, ok := strings.CutPrefix(url, "http://"); ok && s.secure {
		return "https://" + rest
	}
	return url
}
