package localmesos

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"tandem/localmesos/agent"
	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/internal/ssl/ssltest"
	"tandem/localmesos/master"
)

func TestClusterWithTLS(t *testing.T) {
	t.Parallel()
	vars := ssltest.Certificate(t)
	c, err := Start(t.Context(), Options{Dir: t.TempDir(), MasterFlags: func(f *master.Flags) { f.SSL = vars },
		AgentFlags: func(f *agent.Flags) { f.SSL = vars }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	config, err := ssl.Client(vars)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	for _, base := range []string{c.MasterURL(), c.Agent(0).URL()} {
		resp, err := client.Get(base + "/state")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), "slave(1)@127.0.0.1:") || !strings.HasPrefix(base, "https://") {
			t.Errorf("%s: %d %s %v", base, resp.StatusCode, b, err)
		}
	}
}
