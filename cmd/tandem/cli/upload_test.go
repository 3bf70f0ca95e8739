package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/scheduler/wire"
)

func TestUpload(t *testing.T) {
	t.Parallel()
	b := webStack()
	name := filepath.Join(t.TempDir(), "conf")
	if err := os.WriteFile(name, []byte("hi"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, with(t, b, "", "upload", "web-0", name, "/etc/conf", "-n", "test", "--mode", "0640", "--user", "app"), exit.OK,
		[]string{"taskgroup/test/web-0 main: /etc/conf put in place (2 bytes)\n"}, nil)
	if !b.did(`message test 0.web.test.c.1 {"version":"","id":"","type":"upload","task":"1.0.0.web.test.c","upload":{"path":"/etc/conf","content":"aGk=","mode":416,"user":"app"}}`) {
		t.Errorf("calls %q", b.calls)
	}
	expect(t, with(t, b, "typed", "upload", "web-0", "-", "/etc/conf", "-n", "test"), exit.OK, []string{"5 bytes"}, nil)
	expect(t, with(t, b, "", "upload", "web-0", name+"x", "/etc/conf", "-n", "test"), exit.Usage, nil, []string{"no such file"})
	expect(t, with(t, b, strings.Repeat("x", api.MaxUpload+1), "upload", "web-0", "-", "/etc/conf", "-n", "test"), exit.Usage, nil, []string{"more than 1048576 bytes"})
	for _, mode := range []string{"x", "0", "4755", "649"} {
		expect(t, with(t, b, "", "upload", "web-0", name, "/etc/conf", "-n", "test", "--mode", mode), exit.Usage, nil, []string{"write them as 0640"})
	}
}

func TestReloadRestartAndCommit(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "reload", "web-0", "-n", "test"), exit.OK, []string{"taskgroup/test/web-0 main: reloaded\n"}, nil)
	expect(t, with(t, b, "", "restart-process", "web-0", "-n", "test"), exit.OK, []string{"main: restarted\n"}, nil)
	expect(t, with(t, b, "", "commit", "web-0", "team/web:1", "-n", "test"), exit.OK, []string{"main: image team/web:1 made (sha256:1234)\n"}, nil)
	for _, call := range []string{`"type":"reload","task":"1.0.0.web.test.c"}`, `"type":"restart","task":"1.0.0.web.test.c"}`, `"type":"commit","task":"1.0.0.web.test.c","commit":{"image":"team/web:1"}}`} {
		if !b.did(`message test 0.web.test.c.1 {"version":"","id":"",` + call) {
			t.Errorf("no %s in %q", call, b.calls)
		}
	}
	r := with(t, b, "", "commit", "web-0", "team/web:1", "-n", "test", "-o", "json")
	var list struct{ Items []outcome }
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list.Items) != 1 || list.Items[0].ImageID != "sha256:1234" {
		t.Errorf("%v %s", err, r.out)
	}
	expect(t, with(t, b, "", "commit", "application/web", "x", "-n", "test"), exit.Usage, nil, []string{"an image is made of one: name one, such as web-0"})
	expect(t, with(t, b, "", "reload", "web-1", "-n", "test"), exit.Refused, nil, []string{"does not run"})
	b.groups[0].Tasks = append(b.groups[0].Tasks, wire.Task{ID: "x", Name: "side"})
	expect(t, with(t, b, "", "restart-process", "web-0", "-n", "test"), exit.Usage, nil, []string{"choose one with --task"})
	expect(t, with(t, b, "", "__complete", "commit", ""), exit.OK, []string{"web-0\nweb-1\n"}, nil)
	expect(t, with(t, b, "", "__complete", "upload", "web-0", ""), exit.OK, []string{":0\n"}, nil)
}
