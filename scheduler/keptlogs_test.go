package scheduler

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is kept of a process's own logs is listed as the agent has it, the newest first; what is
// not there is told plainly.
func TestKeptLogs(t *testing.T) {
	t.Parallel()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch dir := r.URL.Query().Get("path"); dir {
		case "/s/full":
			fmt.Fprintf(w, `[{"path":"%[1]s/a.log","size":3,"mtime":100.5,"mode":"-rw-r--r--"},{"path":"%[1]s/b.log","size":4,"mtime":200,"mode":"-rw-r--r--"},
{"path":"%[1]s/link","size":4,"mtime":300,"mode":"lrwxrwxrwx"},{"path":"%[1]s/dir","size":4,"mtime":300,"mode":"drwxr-xr-x"}]`, dir)
		case "/s/unwell":
			http.Error(w, "the disk is gone", http.StatusInternalServerError)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(agent.Close)
	kept := func(dir string) *keptLogs {
		return &keptLogs{src: logSource{agent: agent.URL}, dir: dir, name: "db", host: "node7"}
	}
	files, err := kept("/s/full").list(t.Context())
	if err != nil || len(files) != 2 || files[0].Name != "b.log" || files[1].Name != "a.log" || files[1].Size != 3 || files[1].Modified.Unix() != 100 {
		t.Errorf("%+v %v", files, err)
	}
	for file, want := range map[string]string{"": "/s/full/b.log", "a.log": "/s/full/a.log"} {
		if src, err := kept("/s/full").open(t.Context(), file); err != nil || src.path != want {
			t.Errorf("%q: %+v %v", file, src, err)
		}
	}
	for _, c := range []struct{ dir, file, want string }{
		{"/s/full", "c.log", "no file c.log of its logPath is kept; there are log/b.log, log/a.log"},
		{"/s/full", "../full/a.log", "is kept"},
		{"/s/full", "link", "is kept"},
		{"/s/none", "", "may still be on agent node7"},
		{"", "", "may still be on agent node7"},
		{"/s/unwell", "", "the disk is gone"},
	} {
		if src, err := kept(c.dir).open(t.Context(), c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %+v %v", c.dir, c.file, src, err)
		}
	}
}

// An agent that lists no directory has one file of an output; an agent that does not answer has none.
func TestOutputOfAnAgentThatListsNothing(t *testing.T) {
	t.Parallel()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not for you", http.StatusForbidden)
	}))
	t.Cleanup(agent.Close)
	src := logSource{agent: agent.URL, path: "/s/stdout"}
	if err := src.locate(t.Context()); err != nil || len(src.files) != 1 || src.files[0].path != "/s/stdout" {
		t.Errorf("%+v %v", src.files, err)
	}
	agent.Close()
	if err := src.locate(t.Context()); err == nil {
		t.Error("it lists what nobody answered")
	}
}
