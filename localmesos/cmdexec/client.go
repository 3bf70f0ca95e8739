package cmdexec

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/internal/wire"
)

// callTimeout bounds one call but SUBSCRIBE, whose answer does not end.
const callTimeout = 20 * time.Second

// client makes calls to the agent.
type client struct {
	cfg  config
	url  string
	http *http.Client
}

// newClient makes a client of the agent's unix socket, where there is one, or of
// its port, with TLS if libprocess's variables say so.
func newClient(cfg config, variables map[string]string) (*client, error) {
	t := &http.Transport{DisableCompression: true, ResponseHeaderTimeout: callTimeout}
	c := &client{cfg: cfg, url: "http://" + cfg.endpoint + "/api/v1/executor", http: &http.Client{Transport: t}}
	if cfg.socket != "" {
		// There is no TLS on it.
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", cfg.socket)
		}
		return c, nil
	}
	var err error
	if t.TLSClientConfig, err = ssl.Client(variables); err != nil {
		return nil, err
	}
	if t.TLSClientConfig != nil {
		c.url = "https://" + cfg.endpoint + "/api/v1/executor"
	}
	return c, nil
}

func (c *client) call(ctx context.Context, call *xexec.Call) (*http.Response, error) {
	call.ExecutorID.Value, call.FrameworkID.Value = c.cfg.executor, c.cfg.framework
	body, err := wire.Marshal(wire.Protobuf, call)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", string(wire.Protobuf))
	req.Header.Set("Accept", string(wire.Protobuf))
	if c.cfg.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.token)
	}
	return c.http.Do(req)
}

// subscribe opens the stream; its events go to out, and at last its end.
func (c *client) subscribe(ctx context.Context, tasks []mesos.TaskInfo, updates []mesos.TaskStatus, out chan<- event) error {
	s := &xexec.Call_Subscribe{UnacknowledgedTasks: tasks}
	for _, u := range updates {
		s.UnacknowledgedUpdates = append(s.UnacknowledgedUpdates, xexec.Call_Update{Status: u})
	}
	resp, err := c.call(ctx, &xexec.Call{Type: xexec.Call_SUBSCRIBE, Subscribe: s}) //nolint:bodyclose // the reader of the stream closes it
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return refusal(resp)
	}
	go func() {
		defer resp.Body.Close()
		records := wire.NewRecordReader(resp.Body)
		for {
			ev := &xexec.Event{}
			b, err := records.Next()
			if err == nil {
				_, err = wire.Unmarshal(wire.Protobuf, b, ev)
			}
			select {
			case out <- event{ev: ev, err: err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return nil
}

func (c *client) update(ctx context.Context, s *mesos.TaskStatus) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.call(ctx, &xexec.Call{Type: xexec.Call_UPDATE, Update: &xexec.Call_Update{Status: *s}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return refusal(resp)
	}
	return nil
}

func refusal(resp *http.Response) error {
	const enough = 1000
	text, _ := io.ReadAll(io.LimitReader(resp.Body, enough))
	return fmt.Errorf("the agent answered %s: %s", resp.Status, bytes.TrimSpace(text))
}

// newUUID returns a random uuid (RFC 9562, version 4), raw.
func newUUID() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return b
}
