package mesos

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

const (
	schedulerPath = "/api/v1/scheduler"
	streamHeader  = "Mesos-Stream-Id"
	mediaType     = "application/x-protobuf"
	maxRedirects  = 5
)

// transport sends single requests; it knows nothing of sessions.
type transport struct {
	client            *http.Client
	principal, secret string
}

func newTransport(tlsConfig *tls.Config, principal, secret string) *transport {
	return &transport{
		principal: principal, secret: secret,
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
				TLSClientConfig:     tlsConfig,
				MaxIdleConnsPerHost: 4,
				IdleConnTimeout:     90 * time.Second,
			},
			// Redirects are followed by hand: they name the leader, which is remembered.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// statusError is an answer of the master other than the one hoped for.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("master answered %d %s: %s", e.code, http.StatusText(e.code), e.text)
	if e.code == http.StatusUnauthorized {
		text += "; it does not accept the framework's credentials: check --principal and --secret-file against the master's --credentials"
	}
	return text
}

// redirectError names the master that leads.
type redirectError struct{ leader *url.URL }

func (e *redirectError) Error() string { return "the leading master is " + e.leader.Host }

// post sends a call to the master at base. On an error the response is nil and closed.
func (t *transport) post(ctx context.Context, base *url.URL, stream string, call *scheduler.Call, want int) (*http.Response, error) {
	body, err := call.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", call.Type, err)
	}
	target := base.JoinPath(schedulerPath)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", mediaType)
	if stream != "" {
		req.Header.Set(streamHeader, stream)
	}
	if t.principal != "" {
		req.SetBasicAuth(t.principal, t.secret)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, advise(err)
	}
	if resp.StatusCode == want {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
	if resp.StatusCode == http.StatusTemporaryRedirect {
		if leader := leaderOf(target, resp.Header.Get("Location")); leader != nil {
			if target.Scheme == "https" && leader.Scheme != "https" {
				return nil, fmt.Errorf("master %s names %s as the leader, by %s and not by https: credentials and secrets of tasks do not go there",
					target.Host, leader.Host, leader.Scheme)
			}
			return nil, &redirectError{leader: leader}
		}
	}
	return nil, &statusError{code: resp.StatusCode, text: strings.TrimSpace(string(text))}
}

// advise adds to an error of TLS what an operator can do about it.
func advise(err error) error {
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unverified):
		return fmt.Errorf("%w; name the master's authority in --ca-file, and the master as its certificate names it", err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w; leave https:// out of --master", err)
	default:
		return err
	}
}

// leaderOf reads a master's redirect, which has no scheme: //host:port/api/v1/scheduler.
func leaderOf(target *url.URL, location string) *url.URL {
	u, err := target.Parse(location)
	if err != nil || location == "" || u.Host == "" {
		return nil
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}

// subscribe opens a stream at base or at the master that it names as the leader.
func (t *transport) subscribe(ctx context.Context, base *url.URL, call *scheduler.Call) (*http.Response, *url.URL, error) {
	for range maxRedirects {
		resp, err := t.post(ctx, base, "", call, http.StatusOK)
		var redirect *redirectError
		if !errors.As(err, &redirect) {
			return resp, base, err
		}
		base = redirect.leader
	}
	return nil, base, fmt.Errorf("more than %d redirects; the masters disagree about who leads", maxRedirects)
}
