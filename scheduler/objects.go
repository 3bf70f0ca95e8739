package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"tandem/api"
	"tandem/network"
	"tandem/scheduler/store"
	"tandem/scheduler/wire"
)

// apiError is an answer that is not 2xx.
type apiError struct {
	status int
	wire.Problem
}

func (e *apiError) Error() string { return e.Message }

func notFound(ref fmt.Stringer) error {
	return &apiError{404, wire.Problem{Code: wire.CodeNotFound, Message: ref.String() + " does not exist"}}
}

func conflict(format string, args ...any) error {
	return &apiError{409, wire.Problem{Code: wire.CodeConflict, Message: fmt.Sprintf(format, args...)}}
}

// recordOverhead is more than a record has beside the document.
const recordOverhead = 1 << 10

// Check returns what is wrong with an object beyond its format: the rules of
// its network and ports. It is what both the scheduler's admission and an
// offline validation ask.
func Check(o api.Object) api.Errors {
	var pod *api.PodSpec
	switch t := o.(type) {
	case *api.Application:
		pod = &t.Spec.Template.Spec
	case *api.Deployment:
		if !t.HasTemplate() {
			return nil
		}
		pod = &t.Spec.Template.Spec
	default:
		return nil
	}
	const prefix = "spec.template.spec"
	group, _, err := network.GroupOf(pod, prefix)
	if err != nil {
		if errs, ok := err.(api.Errors); ok { //nolint:errorlint // GroupOf returns it bare
			return errs
		}
		return api.Errors{{Path: prefix, Message: err.Error()}}
	}
	return network.ValidatePorts(group)
}

// isWorkload tells whether objects of the kind run taskgroups.
func isWorkload(k api.Kind) bool {
	return k == api.KindApplication || k == api.KindProcess || k == api.KindDeployment
}

// apply declares documents that have passed decoding, validation and Check: all or none.
func (l *loop) apply(docs []api.Document, dryRun bool) ([]wire.Change, error) {
	changes := make([]wire.Change, len(docs))
	now := l.s.o.Now().UTC()
	var put []*object
	for i := range docs {
		ref := docs[i].Ref()
		changes[i] = wire.Change{Ref: ref, Action: wire.Created}
		rec := objectRecord{Raw: docs[i].Raw, Created: now, Updated: now}
		if err := l.admit(ref, docs[:i]); err != nil {
			return nil, err
		}
		if old := l.objects[ref]; old != nil {
			if bytes.Equal(old.Raw, docs[i].Raw) {
				changes[i].Action = wire.Unchanged
				continue
			}
			changes[i].Action = wire.Configured
			rec.Created, rec.Restarts = old.Created, old.Restarts
		}
		// A record that the store does not take would end the scheduler.
		if n := len(rec.Raw) + recordOverhead; n > store.MaxValue {
			return nil, &apiError{422, wire.Problem{Code: wire.CodeInvalid, Message: fmt.Sprintf(
				"%s has %d bytes, at most %d are possible; split it up", ref, len(rec.Raw), store.MaxValue-recordOverhead)}}
		}
		o, err := newObject(rec)
		if err != nil {
			return nil, err
		}
		put = append(put, o)
	}
	if dryRun {
		return changes, nil
	}
	for _, o := range put {
		action := "Configured"
		if l.objects[o.ref] == nil {
			action = "Created"
		}
		l.change(o)
		l.event(o.ref, "info", action, "by apply")
	}
	return changes, nil
}

// change puts an object in the place of the one before. Whoever waits because
// of the old one's failures waits no longer, and where the policy is another, it is asked again.
func (l *loop) change(o *object) {
	if old := l.objects[o.ref]; old != nil && old.app != nil && o.app != nil {
		for _, sl := range l.slots[o.ref] {
			switch {
			case sl.Group == nil && old.generation != o.generation && (sl.Attempts > 0 || !sl.NotBefore.IsZero()):
				sl.startAfresh()
				l.saveSlot(sl)
			case sl.Done && old.app.RestartPolicy != o.app.RestartPolicy:
				sl.Done = false
				l.saveSlot(sl)
			}
		}
	}
	l.objects[o.ref] = o
	l.saveObject(o)
	l.touched[o.ref] = true
}

// admit refuses what cannot be together: taskgroups carry no kind in their
// names, so one namespace has one workload of a name.
func (l *loop) admit(ref api.Ref, before []api.Document) error {
	if old := l.objects[ref]; old != nil && old.Deleting {
		return conflict("%s is being deleted; apply it again when it is gone", ref)
	}
	if !isWorkload(ref.Kind) {
		return nil
	}
	for _, kind := range []api.Kind{api.KindApplication, api.KindProcess, api.KindDeployment} {
		other := api.Ref{Kind: kind, Namespace: ref.Namespace, Name: ref.Name}
		if other == ref {
			continue
		}
		taken := l.objects[other] != nil
		for i := range before {
			taken = taken || before[i].Ref() == other
		}
		if taken {
			return conflict("%s cannot be: %s has the same name; choose another or delete that one first", ref, other)
		}
	}
	return nil
}

// scale changes the number of instances, in the raw form too: what get gives back is what holds.
func (l *loop) scale(ref api.Ref, replicas int) error {
	o, err := l.workload(ref)
	if err != nil {
		return err
	}
	raw, err := withInstances(o.Raw, replicas)
	if err != nil {
		return err
	}
	rec := o.objectRecord
	rec.Raw, rec.Updated = raw, l.s.o.Now().UTC()
	n, err := newObject(rec)
	if err != nil {
		return err
	}
	l.change(n)
	l.event(ref, "info", "Scaled", fmt.Sprintf("from %d to %d instances", o.app.Spec.Instance, replicas))
	return nil
}

// withInstances sets spec.instance in a document, whatever the case of its keys.
func withInstances(raw json.RawMessage, n int) (json.RawMessage, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("stored document: %w", err)
	}
	specKey := keyLike(doc, "spec")
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(doc[specKey], &spec); err != nil {
		return nil, fmt.Errorf("stored document: spec: %w", err)
	}
	var err error
	if spec[keyLike(spec, "instance")], err = json.Marshal(n); err != nil {
		return nil, err
	}
	if doc[specKey], err = json.Marshal(spec); err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

func keyLike(m map[string]json.RawMessage, key string) string {
	for k := range m {
		if strings.EqualFold(k, key) {
			return k
		}
	}
	return key
}

func (l *loop) workload(ref api.Ref) (*object, error) {
	o := l.objects[ref]
	switch {
	case o == nil:
		return nil, notFound(ref)
	case !isWorkload(ref.Kind) || o.app == nil:
		return nil, conflict("%s runs nothing", ref)
	case o.Deleting:
		return nil, conflict("%s is being deleted", ref)
	}
	return o, nil
}

// restart makes every taskgroup of a workload out of date, so that they are replaced one at a time.
func (l *loop) restart(ref api.Ref) error {
	o, err := l.workload(ref)
	if err != nil {
		return err
	}
	rec := o.objectRecord
	rec.Restarts++
	rec.Updated = l.s.o.Now().UTC()
	n, err := newObject(rec)
	if err != nil {
		return err
	}
	l.change(n)
	l.event(ref, "info", "Restart", "asked for: every taskgroup is replaced, one at a time")
	return nil
}

// findSlot finds the instance of a taskgroup that is named by its id or by its
// name; nil when there is none.
func (l *loop) findSlot(namespace, name string) *slot {
	for ref, slots := range l.slots {
		for _, sl := range slots {
			if ref.Namespace == namespace && l.groupName(sl) == name || sl.Group != nil && sl.Group.ID == name {
				return sl
			}
		}
	}
	return nil
}

func noGroup(name string) error {
	return &apiError{404, wire.Problem{Code: wire.CodeNotFound, Message: fmt.Sprintf("taskgroup %q does not exist", name)}}
}

// restartGroup replaces one taskgroup, named by its id or by its name.
func (l *loop) restartGroup(namespace, name string) error {
	sl := l.findSlot(namespace, name)
	if sl == nil {
		return noGroup(name)
	}
	l.touched[sl.Owner] = true
	switch {
	case sl.Group == nil: // it waits for its time, or for a place
		sl.startAfresh()
		l.saveSlot(sl)
	case sl.Group.ended():
		sl.Group.Kill = killReplace
		l.saveSlot(sl)
	case sl.Group.Kill != killSurplus:
		l.kill(sl, killReplace, l.s.o.Now())
	}
	return nil
}

// remove deletes an object; a workload goes when nothing of it runs any more.
func (l *loop) remove(ref api.Ref) error {
	o := l.objects[ref]
	if o == nil {
		return notFound(ref)
	}
	if o.Deleting {
		return nil
	}
	if len(l.slots[ref]) == 0 {
		delete(l.objects, ref)
		l.drop(objectKey(ref))
		l.event(ref, "info", "Deleted", "on request")
		return nil
	}
	o.Deleting = true
	l.saveObject(o)
	l.touched[ref] = true
	l.event(ref, "info", "Deleting", "on request: its taskgroups are ended first")
	return nil
}
