package localmesos

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// TestAgentMarkedGone: an agent that an operator gives up ends with all that it
// runs, at once when it is there and as soon as it comes back when it is not; the
// next agent of its directory is another one.
func TestAgentMarkedGone(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"there": false, "away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 1)
			f := subscribe(t, c, "")
			o := f.launch("x", "a")
			running := f.update("a", mesos.TASK_RUNNING)
			pid := int(running.GetContainerStatus().GetExecutorPID())
			node := c.Agent(0)
			if away {
				node.Kill()
			}
			gone := node.agent
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.MasterURL()+"/api/v1",
				strings.NewReader(`{"type":"MARK_AGENT_GONE","mark_agent_gone":{"agent_id":{"value":"`+o.AgentID.Value+`"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK || len(b) > 0 {
				t.Fatalf("MARK_AGENT_GONE: %d %s", resp.StatusCode, b)
			}
			if s := f.update("a", mesos.TASK_LOST); s.Message == nil || *s.Message != "Agent has been marked gone" {
				t.Errorf("%v", s)
			}
			if away {
				if err := node.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				gone = node.agent
			}
			select {
			case <-gone.Done():
			case <-time.After(20 * time.Second):
				t.Fatal("the agent goes on")
			}
			if err := gone.Err(); err == nil || !strings.Contains(err.Error(), "Agent has been marked gone") {
				t.Errorf("the agent ended: %v", err)
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("its executor is still there: %v", err)
			}
			node.Kill() // only forgets the one that has ended
			if err := node.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := c.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			next := f.next("OFFERS of the next agent", func(e scheduler.Event) bool {
				return e.Type == scheduler.Event_OFFERS && e.Offers.Offers[0].AgentID != o.AgentID
			})
			if next.Offers.Offers[0].Hostname != o.Hostname {
				t.Errorf("%v", next)
			}
		})
	}
}
