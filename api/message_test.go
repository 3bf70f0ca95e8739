package api

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestMessageCheck: what is refused before an executor looks for the task.
func TestMessageCheck(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	for text, want := range map[string]string{
		`"type":"upload","upload":{"path":"/etc/x","content":"aGk=","mode":416}`: "",
		`"type":"upload","upload":{"path":"` + long + `"}`:                       "is none of a file",
		`"type":"upload","upload":{"path":"a\u0000b"}`:                           "is none of a file",
		`"type":"upload"`: "names no file",
		`"type":"upload","upload":{"path":"/x","mode":2048}`:             "other than permission bits",
		`"type":"commit","commit":{"image":"localhost:5000/team/app:1"}`: "",
		`"type":"commit","commit":{"image":"a b"}`:                       "no name for a new image",
		`"type":"commit","commit":{"image":"sha256:00"}`:                 "no name for a new image",
		`"type":"commit","commit":{"image":"` + long + `"}`:              "no name for a new image",
		`"type":"commit"`: "names no image",
		`"type":"reload"`: "",
		`"type":"logs"`:   "say neither",
		`"type":"logs","logs":{"file":"a.log","tail":-1}`: "",
		`"type":"logs","logs":{"file":"a/b"}`:             "is no name of a file",
		`"type":"logs","logs":{"file":".."}`:              "is no name of a file",
		`"type":"restart"`:                                "",
		`"type":"reboot"`:                                 "is unknown; this executor understands signal, resources, exec, upload, reload, restart, commit",
		`"type":"uplaod"`:                                 "did you mean upload",
	} {
		var m Message
		if err := json.Unmarshal([]byte(`{"version":"tandem/v1","id":"1",`+text+`}`), &m); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := m.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	// All types are known, and the list of them is the caller's own.
	types := MessageTypes()
	types[0] = "x"
	if MessageTypes()[0] != string(MessageSignal) || len(types) != 8 {
		t.Error(MessageTypes())
	}
}

// FuzzMessage: whatever a framework sends, checking it does not panic.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"version":"tandem/v1","id":"1","type":"upload","upload":{"path":"/x","content":"aGk="}}`))
	f.Add([]byte(`{"version":"tandem/v1","id":"1","type":"resources","resources":{"limits":{"cpus":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Message
		if json.Unmarshal(data, &m) != nil {
			return
		}
		if err := m.Check(); err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}

// TestResourceChangeOfProcesses: their number is a limit, is kept by later changes, and
// cannot be 0.
func TestResourceChangeOfProcesses(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	cpus := 1.0
	for _, c := range []struct {
		change ResourceChange
		want   string
	}{
		{ResourceChange{Limits: ResourceAmounts{Pids: n(5)}}, ""},
		{ResourceChange{Limits: ResourceAmounts{Pids: n(-1)}}, ""},
		{ResourceChange{Limits: ResourceAmounts{Pids: n(0)}}, "limits.pids"},
		{ResourceChange{Limits: ResourceAmounts{Pids: n(-2)}}, "limits.pids"},
		{ResourceChange{Requests: ResourceAmounts{Pids: n(5)}}, "requests.pids"},
	} {
		m := Message{Version: TaskSpecVersion, ID: "1", Type: MessageResources, Resources: &c.change}
		if err := m.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.change, err, c.want)
		}
	}
	after, err := (&ResourceChange{Limits: ResourceAmounts{Pids: n(5)}}).Apply(ResourceUpdate{})
	if err == nil {
		after, err = (&ResourceChange{Limits: ResourceAmounts{CPUs: &cpus}}).Apply(after)
	}
	if err != nil || after.Limits.Pids != 5 || after.Limits.CPUs != 1 {
		t.Errorf("%+v %v", after, err)
	}
}
