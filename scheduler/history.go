package scheduler

import (
	"time"

	"tandem/api"
	"tandem/scheduler/wire"
)

// maxHistory is how many events are kept of each object.
const maxHistory = 50

// history holds the last events of each object, in memory: it is for people,
// and nothing is decided by it.
type history struct {
	byObject map[api.Ref][]wire.Event
}

func newHistory() *history { return &history{byObject: map[api.Ref][]wire.Event{}} }

// event notes what happened to an object, and logs it.
func (l *loop) event(ref api.Ref, level, reason, text string) {
	if level == "warning" {
		l.log.Warn(text, "object", ref.String(), "reason", reason)
	} else {
		l.log.Info(text, "object", ref.String(), "reason", reason)
	}
	h := l.events.byObject
	list := h[ref]
	list = append(list, wire.Event{Time: l.s.o.Now(), Object: ref.String(), Level: level, Reason: reason, Text: text})
	if len(list) > maxHistory {
		list = append([]wire.Event(nil), list[len(list)-maxHistory:]...)
	}
	h[ref] = list
	// Objects that are gone keep their history for a while, not for ever.
	if len(h) > 2*len(l.objects)+1000 {
		for r, events := range h {
			if l.objects[r] == nil && l.s.o.Now().Sub(events[len(events)-1].Time) > time.Hour {
				delete(h, r)
			}
		}
	}
}
