package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/recordio"
	"tandem/localmesos/link"
)

// fleet is many agents in this process, which speak the private protocol of
// master and agents. They start nothing: a task runs as soon as it is there.
type fleet struct {
	master string
	client *http.Client
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// newFleet registers n agents.
func newFleet(ctx context.Context, master string, n int) (*fleet, error) {
	ctx, cancel := context.WithCancel(ctx)
	fl := &fleet{master: master, client: newClient(), cancel: cancel}
	const lanes = 64
	if err := together(n, lanes, func(i int) error { return fl.join(ctx, i) }); err != nil {
		fl.close()
		return nil, err
	}
	return fl, nil
}

func (fl *fleet) close() {
	fl.cancel()
	fl.all.Wait()
	fl.client.CloseIdleConnections()
}

// join registers an agent and answers the master until the fleet is closed.
func (fl *fleet) join(ctx context.Context, n int) error {
	port, version := int32(5051), "1.12.0"
	host := fmt.Sprintf("sim-%04d", n)
	text := mesos.TEXT
	body, err := json.Marshal(link.Subscribe{IP: "127.0.0.1", Version: version, BootID: "bench", AgentInfo: mesos.AgentInfo{Hostname: host, Port: &port,
		Resources:  []mesos.Resource{scalar("cpus", 16), scalar("mem", 65536), scalar("disk", 100000), ports(31000, 32000)},
		Attributes: []mesos.Attribute{{Name: "rack", Type: text, Text: &mesos.Value_Text{Value: fmt.Sprintf("r%d", n%20)}}}}})
	if err != nil {
		return err
	}
	resp, err := fl.post(ctx, "/subscribe", "", body)
	if err != nil {
		return fmt.Errorf("agent %s: %w", host, err)
	}
	a := &simulated{fl: fl, stream: resp.Header.Get(link.StreamHeader), in: recordio.NewReader(resp.Body, maxRecord)}
	e, err := a.next()
	if err != nil || e.Registered == nil {
		resp.Body.Close()
		return fmt.Errorf("agent %s is not registered: %w", host, err)
	}
	a.id = e.Registered.AgentID
	fl.all.Go(func() {
		defer resp.Body.Close()
		for {
			e, err := a.next()
			if err == nil {
				err = a.answer(ctx, e)
			}
			if err != nil {
				return // the tasks are missed then, and the bench says so
			}
		}
	})
	return nil
}

func (fl *fleet) post(ctx context.Context, path, stream string, body []byte) (*http.Response, error) {
	return send(ctx, fl.client, fl.master+link.Path+path, bytes.Clone(body),
		http.Header{"Content-Type": {"application/json"}, link.StreamHeader: {stream}})
}

// simulated is one agent.
type simulated struct {
	fl     *fleet
	id     mesos.AgentID
	stream string
	in     *recordio.Reader
}

func (a *simulated) next() (*link.Event, error) {
	b, err := a.in.Next()
	if err != nil {
		return nil, err
	}
	e := &link.Event{}
	return e, json.Unmarshal(b, e)
}

func (a *simulated) answer(ctx context.Context, e *link.Event) error {
	switch e.Type {
	case link.EventPing:
		return a.say(ctx, &link.Call{Type: link.CallPong, PongFor: e.Ping})
	case link.EventRun:
		for _, t := range e.Run.Tasks {
			state, source, uuid := mesos.TASK_RUNNING, mesos.SOURCE_EXECUTOR, make([]byte, 16)
			_, _ = rand.Read(uuid) // never fails
			err := a.say(ctx, &link.Call{Type: link.CallUpdate, Update: &link.StatusUpdate{
				FrameworkID: *e.Run.Framework.ID, ExecutorID: e.Run.Executor.ExecutorID.Value, LatestState: state,
				Status: mesos.TaskStatus{TaskID: t.TaskID, AgentID: &a.id, State: &state, Source: &source, UUID: uuid}}})
			if err != nil {
				return err
			}
		}
	default:
	}
	return nil
}

func (a *simulated) say(ctx context.Context, c *link.Call) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	resp, err := a.fl.post(ctx, "/call", a.stream, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func ports(from, to uint64) mesos.Resource {
	kind := mesos.RANGES
	return mesos.Resource{Name: "ports", Type: &kind, Ranges: &mesos.Value_Ranges{Range: []mesos.Value_Range{{Begin: from, End: to}}}}
}
