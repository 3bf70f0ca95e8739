package keeper

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/procid"
)

// TestRecordsOfFormat1: what a keeper of any release wrote stays readable.
func TestRecordsOfFormat1(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	r.kill()
	names, err := filepath.Glob("testdata/records-1/*.json")
	if err != nil || len(names) != 3 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.dir, "processes", filepath.Base(n)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"torn.json", "empty.json", "0f3a.4.json"} {
		text := map[string]string{"torn.json": `{"format":1,"key":"to`, "0f3a.4.json": `{"format":1,"key":"other","id":{"bootID":"b","pid":2,"startTime":3}}`}[bad]
		if err := os.WriteFile(filepath.Join(r.dir, "processes", bad), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.start("")
	got := map[string]Entry{}
	for _, e := range r.c.Entries {
		if e.At.IsZero() || e.ID.BootID != "an earlier boot" || !e.Ended {
			t.Errorf("%+v", e)
		}
		e.At, e.ID = time.Time{}, procid.Identity{}
		got[e.Key] = e
	}
	want := map[string]Entry{
		"0f3a.1": {Key: "0f3a.1", Tag: "sh", Ended: true, Known: true, Code: 3},
		"0f3a.2": {Key: "0f3a.2", Ended: true},
		"0f3a.3": {Key: "0f3a.3", Ended: true, Known: true, Signal: 9},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if aside, _ := os.ReadDir(filepath.Join(r.dir, "corrupt")); len(aside) != 3 {
		t.Errorf("set aside: %v", aside)
	}
}

// TestProtocols has the recorded conversations with this keeper.
func TestProtocols(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"protocol-1.txt", "protocol-2.txt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			haveConversation(t, filepath.Join("testdata", name))
		})
	}
}

func haveConversation(t *testing.T, recorded string) {
	r := newRoom(t, "")
	d, err := os.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	conn, err := net.Dial("unix", socketPath(d))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := conn.(*net.UnixConn)
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case ">":
			rest, with, _ := strings.Cut(rest, " +2 files")
			var files []*os.File
			if with == "" && strings.Contains(line, "+2 files") {
				files = []*os.File{null, null}
			}
			if err := send(c, json.RawMessage(rest), files); err != nil {
				t.Fatal(line, err)
			}
		case "<":
			var got, want any
			if _, err := receive(c, &got); err != nil {
				t.Fatal(line, err)
			}
			if err := json.Unmarshal([]byte(rest), &want); err != nil {
				t.Fatal(line, err)
			}
			if !matches(want, got) {
				t.Errorf("%s\ngot  %v", line, got)
			}
		case "~":
			key := rest[strings.LastIndexByte(rest, ' ')+1:]
			eventually(t, rest, func() bool {
				e, err := r.c.Look(t.Context(), key)
				return err == nil && e.Ended
			})
			r.c.Close()
		}
	}
	<-r.wait
	r.c = nil
}

// matches compares JSON; in want, "*" is anything, also nothing.
func matches(want, got any) bool {
	switch w := want.(type) {
	case string:
		return w == "*" || w == got
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range w {
			if _, there := g[k]; !there && v != "*" || there && !matches(v, g[k]) {
				return false
			}
		}
		for k := range g {
			if _, there := w[k]; !there {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(want, got)
}

// FuzzReceive: nothing that a peer sends harms the keeper.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x18{\"op\":\"spawn\",\"spec\":{}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip(err)
		}
		if _, err := syscall.Write(fds[0], b[:min(len(b), 4096)]); err != nil {
			t.Skip(err)
		}
		syscall.Close(fds[0])
		file := os.NewFile(uintptr(fds[1]), "pair")
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for {
			r := new(request)
			files, err := receive(conn.(*net.UnixConn), r)
			if err != nil {
				return
			}
			r.received = files
			if r.Op == opSpawn && r.detach() == nil {
				t.Fatal("a start without files was taken")
			}
			_ = checkKey(r.Key)
		}
	})
}

func TestFaultsKeepTheirNumber(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(faultOf(errors.Join(errors.New("x"), syscall.ENOEXEC)))
	var f fault
	if err = errors.Join(err, json.Unmarshal(b, &f)); err != nil || !errors.Is(&f, syscall.ENOEXEC) {
		t.Error(string(b), err)
	}
}
