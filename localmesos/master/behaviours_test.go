package master

import (
	"testing"
	"time"

	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

func TestSubscribingAgainChangesTheNameButNotTheUser(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	first := subscribe(t, m, "", multiRole+`,"failover_timeout":1000`)
	// Of a key that comes twice the last counts.
	second := subscribe(t, m, first.id, `"capabilities":[{"type":"MULTI_ROLE"}],"roles":["a"],"user":"other","name":"new","checkpoint":true,"failover_timeout":1000`)
	if second.id != first.id {
		t.Errorf("%s became %s", first.id, second.id)
	}
	m.loop.do(func() {
		if info := m.frameworks[first.id].info; info.Name != "new" || info.User != "root" || info.GetCheckpoint() || info.Roles[0] != "a" {
			t.Errorf("%v", info)
		}
	})
}

func TestWithoutFailoverTimeoutTheEndOfTheStreamIsTheEnd(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	f := subscribe(t, m, "", multiRole)
	f.cancel()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var there bool
		m.loop.do(func() { there = m.frameworks[f.id] != nil })
		if !there {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the framework is still there")
		}
	}
	again := trySubscribe(t, m, f.id, multiRole)
	if e := again.next(t, "ERROR", ofType(scheduler.Event_ERROR)); e.Error.Message != "Framework has been removed" {
		t.Error(e.Error.Message)
	}
	again.waitEnd(t)
}

func TestTheFirstHeartbeatComesWithSubscribed(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.HeartbeatInterval = time.Hour })
	subscribe(t, m, "", multiRole).next(t, "HEARTBEAT", ofType(scheduler.Event_HEARTBEAT))
}
