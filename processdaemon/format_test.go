package processdaemon

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tandem/internal/journal"
	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// TestRecordsOfFormat1: what a daemon of any release wrote stays readable, with all that
// is in it, and after a reboot each task has ended as it should.
func TestRecordsOfFormat1(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/records-1/*.json")
	if err != nil || len(names) != 11 {
		t.Fatal(names, err)
	}
	opts := Options{DataDir: filepath.Join(testkit.PublicDir(t), "data")}
	for _, n := range names {
		text := read(t, n)
		r, err := readRecord(n)
		if err != nil {
			t.Fatal(n, err)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &got); err != nil {
			t.Fatal(err)
		}
		delete(want, "mainShell") // told earlier releases whom SIGTERM goes to
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read and written again\n%s\nwas\n%s", r.Spec.ID, again, text)
		}
		write(t, filepath.Join(opts.DataDir, "processd/tasks", filepath.Base(n)), text, 0o600)
	}
	// The executor lives: what a dead one left would be removed.
	j, err := journal.Open(filepath.Join(opts.DataDir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := j.Own("0.app.ns.cluster.1")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	d := newDaemon(t, func(o *Options) { o.DataDir = opts.DataDir })
	if told := d.Info().Troubles; len(told) > 0 {
		t.Errorf("told: %q", told)
	}
	notStarted := "the agent was rebooted before its start was complete"
	for id, want := range map[string]struct {
		exit    *protocol.Exit
		failure string
	}{
		"preparing":   {nil, notStarted},
		"ready":       {nil, notStarted},
		"starting":    {nil, notStarted},
		"settling":    {nil, notStarted},
		"running":     {&protocol.Exit{}, ""},
		"stopping":    {&protocol.Exit{}, ""},
		"terminating": {&protocol.Exit{}, ""},
		"draining":    {&protocol.Exit{Known: true, Code: 3}, ""},
		"killing":     {&protocol.Exit{Known: true, Signal: 9, OOMKilled: true}, ""},
		"ended":       {&protocol.Exit{Known: true}, ""},
		"failed":      {nil, "no such file"},
	} {
		st, err := d.Status(id)
		if err != nil || st.State != ended || !reflect.DeepEqual(st.Exit, want.exit) || !strings.Contains(st.Failure, want.failure) || want.failure == "" && st.Failure != "" {
			t.Errorf("%s: %+v %+v %v", id, st, st.Exit, err)
		}
		if st.FinishedAt.IsZero() {
			t.Errorf("%s: it has no end", id)
		}
	}
	// Resolved once and for all.
	for _, n := range names {
		if r, err := readRecord(filepath.Join(opts.DataDir, "processd/tasks", filepath.Base(n))); err != nil || r.State != ended || r.BootID != d.boot && r.Spec.ID == "running" {
			t.Errorf("%+v %v", r, err)
		}
	}
}
