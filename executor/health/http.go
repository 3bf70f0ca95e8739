package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// http is content with a status of 200 to 399; redirections are not followed.
//
// One request over one connection needs no http.Transport, which would start two
// goroutines for it and might hand the connection to the check of another task
// that happens to have the same address in its own namespace.
func (p *patient) http(ctx context.Context, c *Check) (Outcome, error) {
	conn, err := p.dial(ctx, c.Port)
	if err != nil {
		return Outcome{}, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // a connection that is broken says so when it is used
	}
	raw := conn
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	req, err := request(ctx, c, conn.RemoteAddr())
	if err != nil {
		return Outcome{}, err
	}
	if strings.EqualFold(c.Scheme, "https") {
		// Whose certificate it is does not matter: the question is whether it answers.
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: req.URL.Hostname()})
	}
	if err := req.Write(conn); err != nil {
		return Outcome{}, fmt.Errorf("%s: %w", req.URL, err)
	}
	status, err := answer(bufio.NewReaderSize(conn, 1<<10), req)
	if err != nil {
		return Outcome{}, fmt.Errorf("%s: %w", req.URL, err)
	}
	o := Outcome{Value: &status}
	if status < 200 || status > 399 {
		o.Message = strings.TrimSpace(fmt.Sprintf("%s answered %d %s", req.URL, status, http.StatusText(status)))
	}
	return o, nil
}

// answer reads the status of the answer, and nothing of its body. Interim
// answers (1xx, RFC 9110 15.2) are passed over.
func answer(r *bufio.Reader, req *http.Request) (int, error) {
	const most = 10
	for range most {
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp.StatusCode, nil
		}
	}
	return 0, fmt.Errorf("more than %d interim answers", most)
}

func request(ctx context.Context, c *Check, to net.Addr) (*http.Request, error) {
	scheme := strings.ToLower(c.Scheme)
	if scheme == "" {
		scheme = "http"
	}
	path := c.Path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	u, err := url.Parse(scheme + "://" + to.String() + path)
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", c.Path, err)
	}
	u.Fragment = ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", c.Path, err)
	}
	req.Header.Set("User-Agent", "tandem-executor")
	req.Header.Set("Accept", "*/*")
	for k, v := range c.Headers {
		if strings.EqualFold(k, "Host") {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	req.Close = true
	return req, nil
}
