package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"tandem/api"
	"tandem/scheduler/client"
	"tandem/scheduler/wire"
)

// served is a harness whose loop runs and whose API is served. The cluster in
// memory stays as it was: what is wanted of it must be done before.
func served(t *testing.T, h *harness) (*client.Client, string) {
	t.Helper()
	s := h.l.s
	var err error
	if s.api, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.l.run(ctx) }()
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(s.api) }()
	t.Cleanup(func() { server.Close(); cancel(); <-done })
	c, err := client.New(s.api.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return c, "http://" + s.api.Addr().String()
}

func request(t *testing.T, method, url, body string, header ...string) (int, wire.Problem, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p wire.Problem
	_ = json.Unmarshal(b, &p) // some answers are no problems
	return resp.StatusCode, p, resp.Header
}

func documents(docs ...string) string { return `{"documents":[` + strings.Join(docs, ",") + `]}` }

func TestAPIAnswers(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.apply(`{"kind":"configmap","metadata":{"name":"conf","namespace":"test"},"datas":{}}`)
	h.running()
	h.m.connected = false
	_, base := served(t, h)
	cases := []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code, text               string
	}{
		{"no JSON", "POST", "/v1/apply", "{", nil, 400, wire.CodeInvalid, "no JSON"},
		{"no documents", "POST", "/v1/apply", `{}`, nil, 400, wire.CodeInvalid, "no documents"},
		{"fields", "POST", "/v1/apply", documents(`{"kind":"process","metadata":{"name":"a.b"},"spec":{"instance":-1}}`), nil, 422, wire.CodeInvalid, "metadata.name"},
		{"ports", "POST", "/v1/apply", documents(strings.Replace(web(1, "", `"ports":[{"name":"a","hostPort":80},{"name":"b","hostPort":80}],`), "web", "w2", 1)), nil, 422, wire.CodeInvalid, "80"},
		{"same name, other kind", "POST", "/v1/apply", documents(strings.Replace(web(1, "", ""), `"process"`, `"deployment"`, 1)), nil, 409, wire.CodeConflict, "same name"},
		{"twice", "POST", "/v1/apply", documents(web(1, "", ""), web(2, "", "")), nil, 422, wire.CodeInvalid, ""},
		{"too large", "POST", "/v1/apply", documents(`{"kind":"configmap","metadata":{"name":"` + strings.Repeat("x", maxBody) + `"}}`), nil, 413, wire.CodeTooLarge, "bytes"},
		{"too large for the store", "POST", "/v1/apply", documents(`{"kind":"configmap","metadata":{"name":"big"},"datas":{"a":{"type":"file","content":"` + strings.Repeat("AAAA", 259700) + `"}}}`), nil, 422, wire.CodeInvalid, "split it up"},
		{"validate", "POST", "/v1/validate", documents(web(1, "", "")), nil, 200, "", ""},
		{"validate fields", "POST", "/v1/validate", documents(`{"kind":"process","metadata":{"name":"x"}}`), nil, 422, wire.CodeInvalid, "processes"},
		{"unknown kind", "GET", "/v1/objects/gadget", "", nil, 400, wire.CodeInvalid, "gadget"},
		{"kind in any case", "GET", "/v1/objects/Process", "", nil, 200, "", ""},
		{"object", "GET", "/v1/objects/process/test/web", "", nil, 200, "", ""},
		{"no object", "GET", "/v1/objects/process/test/nothing", "", nil, 404, wire.CodeNotFound, "process/test/nothing"},
		{"no path", "GET", "/v2/x", "", nil, 404, wire.CodeNotFound, "no such path"},
		{"scale", "POST", "/v1/objects/process/test/web/scale", `{"replicas":2}`, nil, 200, "", ""},
		{"scale below 0", "POST", "/v1/objects/process/test/web/scale", `{"replicas":-1}`, nil, 400, wire.CodeInvalid, "-1"},
		{"scale too far", "POST", "/v1/objects/process/test/web/scale", `{"replicas":10001}`, nil, 400, wire.CodeInvalid, "10000"},
		{"scale by nothing", "POST", "/v1/objects/process/test/web/scale", ``, nil, 400, wire.CodeInvalid, "replicas"},
		{"scale nothing", "POST", "/v1/objects/process/test/nothing/scale", `{"replicas":1}`, nil, 404, wire.CodeNotFound, ""},
		{"scale a configmap", "POST", "/v1/objects/configmap/test/conf/scale", `{"replicas":1}`, nil, 409, wire.CodeConflict, "runs nothing"},
		{"restart", "POST", "/v1/objects/process/test/web/restart", "", nil, 200, "", ""},
		{"restart nothing", "POST", "/v1/objects/process/test/nothing/restart", "", nil, 404, wire.CodeNotFound, ""},
		{"restart a taskgroup", "POST", "/v1/taskgroups/test/web-0/restart", "", nil, 200, "", ""},
		{"restart no taskgroup", "POST", "/v1/taskgroups/test/web-9/restart", "", nil, 404, wire.CodeNotFound, "web-9"},
		{"events", "GET", "/v1/objects/process/test/web/events", "", nil, 200, "", ""},
		{"taskgroups", "GET", "/v1/taskgroups?namespace=test", "", nil, 200, "", ""},
		{"agents", "GET", "/v1/agents", "", nil, 200, "", ""},
		{"metrics", "GET", "/metrics", "", nil, 200, "", ""},
		{"health", "GET", "/healthz", "", nil, 200, "", ""},
		{"logs of nothing", "GET", "/v1/taskgroups/none/tasks/-/logs", "", nil, 404, wire.CodeNotFound, "none"},
		{"delete nothing", "DELETE", "/v1/objects/process/test/nothing", "", nil, 404, wire.CodeNotFound, ""},
		{"delete", "DELETE", "/v1/objects/configmap/test/conf", "", nil, 200, "", ""},
		{"a web page", "POST", "/v1/objects/process/test/web/restart", "", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, 403, wire.CodeForbidden, "origin"},
		{"a name that was made to point here", "GET", "/v1/taskgroups", "", []string{"Host", "evil.example:7070"}, 403, wire.CodeForbidden, "evil.example"},
		{"localhost", "GET", "/v1/taskgroups", "", []string{"Host", "localhost:7070"}, 200, "", ""},
	}
	for _, c := range cases {
		status, p, _ := request(t, c.method, base+c.path, c.body, c.header...)
		fields := fmt.Sprint(p.Message, p.Errors)
		if status != c.status || p.Code != c.code || !strings.Contains(fields, c.text) {
			t.Errorf("%s: %d %+v, want %d %s", c.name, status, p, c.status, c.code)
		}
	}
}

// Everything of a request is applied or nothing.
func TestApplyIsAllOrNone(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.m.connected = false
	c, base := served(t, h)
	bad := strings.Replace(web(1, "", ""), `"process"`, `"deployment"`, 1)
	if status, _, _ := request(t, "POST", base+"/v1/apply", documents(`{"kind":"configmap","metadata":{"name":"new","namespace":"test"}}`, bad)); status != 409 {
		t.Fatalf("status %d", status)
	}
	if list, err := c.Objects(t.Context(), api.KindConfigMap, ""); err != nil || len(list) > 0 {
		t.Errorf("%v %v", list, err)
	}
	// A dry run changes nothing, either.
	answer, err := c.Apply(t.Context(), wire.ApplyRequest{Documents: []json.RawMessage{[]byte(web(5, "", ""))}, DryRun: true})
	if err != nil || answer.Changes[0].Action != wire.Configured {
		t.Fatalf("%+v %v", answer, err)
	}
	if o, err := c.Object(t.Context(), webRef); err != nil || o.Status.Desired != 1 {
		t.Errorf("%+v %v", o, err)
	}
}

// TestGetGivesBackWhatWasApplied is a golden test over real artifacts.
func TestGetGivesBackWhatWasApplied(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../api/testdata/artifacts/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no artifacts: %v", err)
	}
	h := newHarness(t, 0)
	c, _ := served(t, h)
	applied := 0
	for _, file := range files {
		docs, _, err := api.DecodePaths([]string{file}, nil, api.Options{})
		if err != nil {
			t.Logf("%s is a template that is to be filled in first", filepath.Base(file))
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			answer, err := c.Apply(t.Context(), wire.ApplyRequest{Documents: []json.RawMessage{d.Raw}})
			if err != nil || answer.Changes[0].Action == wire.Unchanged {
				t.Errorf("%s: %+v %v", file, answer, err)
				continue
			}
			o, err := c.Object(t.Context(), d.Ref())
			if err != nil || !bytes.Equal(o.Raw, d.Raw) {
				t.Errorf("%s: %v\n%s", file, err, o.Raw)
				continue
			}
			applied++
			if filepath.Ext(file) != ".json" {
				continue
			}
			var want, got any
			if json.Unmarshal(raw, &want) != nil || json.Unmarshal(o.Raw, &got) != nil {
				t.Errorf("%s: no JSON", file)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", file, diff)
			}
		}
	}
	if applied < 8 {
		t.Errorf("only %d artifacts were applied", applied)
	}
	// The same holds for the next scheduler on the store, and after scaling but for the number.
	list, err := c.Objects(t.Context(), api.KindProcess, "")
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	ref := list[0].Ref
	if err := c.Scale(t.Context(), ref, 7); err != nil {
		t.Fatal(err)
	}
	o, err := c.Object(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	var before, after map[string]any
	_ = json.Unmarshal(list[0].Raw, &before)
	_ = json.Unmarshal(o.Raw, &after)
	before["spec"].(map[string]any)["instance"] = float64(7)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

// fakeAgent serves /files/read as Apache Mesos does, from a growing text.
type fakeAgent struct {
	*httptest.Server
	text chan []byte
}

func newFakeAgent(t *testing.T, goStyle bool) *fakeAgent {
	f := &fakeAgent{text: make(chan []byte, 1)}
	f.text <- nil
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := <-f.text
		f.text <- text
		q := r.URL.Query()
		if q.Get("path") != "/box/tasks/sleep/stdout" {
			http.NotFound(w, r)
			return
		}
		offset, _ := strconv.Atoi(q.Get("offset"))
		if offset < 0 {
			fmt.Fprintf(w, `{"data":"","offset":%d}`, len(text))
			return
		}
		length, _ := strconv.Atoi(q.Get("length"))
		piece := text[min(offset, len(text)):min(offset+length, len(text))]
		if goStyle {
			for i := 1; i < 4 && i < len(piece); i++ {
				if c := piece[len(piece)-i]; utf8.RuneStart(c) && !utf8.FullRune(piece[len(piece)-i:]) {
					piece = piece[:len(piece)-i]
				}
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"data": string(piece), "offset": offset})
			return
		}
		io.WriteString(w, `{"data":"`)
		for _, b := range piece {
			switch {
			case b == '"' || b == '\\':
				w.Write([]byte{'\\', b})
			case b < 0x20 || b == 0x7f:
				fmt.Fprintf(w, `\u%04x`, b)
			default:
				w.Write([]byte{b})
			}
		}
		fmt.Fprintf(w, `","offset":%d}`, offset)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAgent) write(b []byte) { f.text <- append(<-f.text, b...) }

// logged is a served harness with one running task that writes to a fake agent.
func logged(t *testing.T, f *fakeAgent) (*harness, *client.Client, string) {
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.running()
	g := h.slot(0).Group
	g.AgentURL = f.URL
	g.Tasks[0].Report = &api.TaskReport{Sandbox: "/box/tasks/sleep"}
	h.m.connected = false
	c, _ := served(t, h)
	return h, c, g.ID
}

func TestLogs(t *testing.T) {
	t.Parallel()
	for _, goStyle := range []bool{false, true} {
		f := newFakeAgent(t, goStyle)
		var all bytes.Buffer
		for i := range 5000 {
			fmt.Fprintf(&all, "line %d: größer — \"quoted\" \\ 日本語\n", i)
		}
		f.write(all.Bytes())
		_, c, id := logged(t, f)
		read := func(o client.LogOptions, task string) string {
			r, err := c.Logs(t.Context(), id, task, o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if got := read(client.LogOptions{Tail: -1}, "-"); got != all.String() {
			t.Errorf("all: %d bytes of %d", len(got), all.Len())
		}
		lines := strings.SplitAfter(all.String(), "\n")
		for _, n := range []int{0, 1, 10, 3000, 4999, 5000, 9999} {
			want := strings.Join(lines[max(0, 5000-n):], "")
			if got := read(client.LogOptions{Tail: n}, "sleep"); got != want {
				t.Errorf("tail %d: %d bytes, want %d", n, len(got), len(want))
			}
		}
	}
}

// Bytes that are no text must not shift what comes after them.
func TestLogsThatAreNoText(t *testing.T) {
	t.Parallel()
	binary := append(bytes.Repeat([]byte{0xff, 0xfe, 'x'}, 50000), "the end\n"...)
	for _, goStyle := range []bool{false, true} {
		f := newFakeAgent(t, goStyle)
		f.write(binary)
		_, c, id := logged(t, f)
		r, err := c.Logs(t.Context(), id, "sleep", client.LogOptions{Tail: -1})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		r.Close()
		want := binary
		if goStyle {
			want = bytes.Map(func(r rune) rune {
				if r == utf8.RuneError {
					return '?'
				}
				return r
			}, binary)
		}
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("go style %v: %d bytes, want %d (%v)", goStyle, len(b), len(want), err)
		}
	}
}

func TestLogsFollow(t *testing.T) {
	t.Parallel()
	f := newFakeAgent(t, false)
	f.write([]byte("one\n"))
	h, c, id := logged(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := c.Logs(ctx, id, "-", client.LogOptions{Tail: 10, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	expect := func(want string) {
		t.Helper()
		b := make([]byte, len(want))
		if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
			t.Fatalf("%q, want %q (%v)", b, want, err)
		}
	}
	expect("one\n")
	f.write([]byte("two\n"))
	expect("two\n")
	// The reader ends when the task has.
	f.write([]byte("three\n"))
	err = h.l.call(ctx, func() error {
		for _, sl := range h.l.slots[webRef] {
			h.l.giveUp(sl, 3, "", h.now)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != "three\n" {
		t.Errorf("%q %v", rest, err)
	}
}

func TestLogsRefused(t *testing.T) {
	t.Parallel()
	f := newFakeAgent(t, false)
	h, c, id := logged(t, f)
	for name, want := range map[string]int{"sleep": 0, "nothing": 404, h.slot(0).Group.Tasks[0].ID: 0} {
		r, err := c.Logs(t.Context(), id, name, client.LogOptions{Tail: -1})
		if err == nil {
			r.Close()
		}
		if got := statusOf(err); got != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Logs(t.Context(), id, "sleep", client.LogOptions{Tail: -1, Stream: "stderr"}); statusOf(err) != 404 || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("a missing file: %v", err)
	}
	// A task is found by its id alone, also after its taskgroup has ended.
	task := h.slot(0).Group.Tasks[0].ID
	err := h.l.call(t.Context(), func() error {
		for _, sl := range h.l.slots[webRef] {
			h.l.giveUp(sl, 3, "", h.now)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.write([]byte("last words\n"))
	r, err := c.Logs(t.Context(), "-", task, client.LogOptions{Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	r.Close()
	if err != nil || string(text) != "last words\n" {
		t.Errorf("by its id: %q %v", text, err)
	}
	if _, err := c.Logs(t.Context(), "-", "none", client.LogOptions{Tail: -1}); statusOf(err) != 404 {
		t.Errorf("a task that is not there: %v", err)
	}
	f.Close()
	if _, err := c.Logs(t.Context(), id, "sleep", client.LogOptions{Tail: -1}); statusOf(err) != 502 {
		t.Errorf("an agent that is gone: %v", err)
	}
}
