package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/internal/archive/archivetest"
	"tandem/internal/testkit"
	"tandem/localmesos/agent/internal/container"
)

func run(t *testing.T, dir string, uris ...URI) error {
	t.Helper()
	return runStalling(t, time.Minute, dir, uris...)
}

// runStalling gives a download up that makes no progress for so long.
func runStalling(t *testing.T, stall time.Duration, dir string, uris ...URI) error {
	t.Helper()
	var log bytes.Buffer
	err := Run(t.Context(), Job{Dir: dir, URIs: uris, StallTimeout: stall, Log: &log})
	t.Log(log.String())
	return err
}

func write(t *testing.T, path, text string, mode fs.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func check(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	st, err := os.Stat(path)
	if err != nil || string(b) != text || mode != 0 && st.Mode().Perm() != mode {
		t.Errorf("%s: %q %s %v", path, b, st.Mode(), err)
	}
}

func TestLocalFiles(t *testing.T) {
	t.Parallel()
	src, dir := t.TempDir(), t.TempDir()
	plain := write(t, filepath.Join(src, "plain.txt"), "plain", 0o640)
	tool := write(t, filepath.Join(src, "tool.sh"), "#!/bin/sh\n", 0o600)
	bundle := write(t, filepath.Join(src, "bundle.tar.gz"), string(archivetest.Gzip(t, archivetest.Tar(t, archivetest.Entry{Name: "b/", Type: tar.TypeDir, Mode: 0o755},
		archivetest.Entry{Name: "b/run", Body: "run", Mode: 0o755}, archivetest.Entry{Name: "b/link", Link: "run", Type: tar.TypeSymlink},
		archivetest.Entry{Name: "b/up", Link: "../top", Type: tar.TypeSymlink}, archivetest.Entry{Name: "hard", Link: "b/run", Type: tar.TypeLink},
		archivetest.Entry{Name: "./top", Body: "top", Mode: 0o4600}))), 0o600)
	err := run(t, dir, URI{Value: "file://" + plain, Extract: true}, URI{Value: tool, Executable: true, Extract: true},
		URI{Value: bundle, Extract: true}, URI{Value: bundle, OutputFile: "sub/dir/kept.tar.gz"}, URI{Value: "file://localhost" + plain, OutputFile: "again"})
	if err != nil {
		t.Fatal(err)
	}
	check(t, dir+"/plain.txt", "plain", 0o640)
	check(t, dir+"/again", "plain", 0o640)
	check(t, dir+"/tool.sh", "#!/bin/sh\n", 0o755)
	check(t, dir+"/b/run", "run", 0o755)
	check(t, dir+"/b/link", "run", 0)
	check(t, dir+"/b/up", "top", 0o600)
	check(t, dir+"/hard", "run", 0o755)
	if st, err := os.Stat(dir + "/top"); err != nil || st.Mode() != 0o600 {
		t.Errorf("setuid: %v %v", st, err)
	}
	for _, there := range []string{"bundle.tar.gz", "sub/dir/kept.tar.gz"} {
		if _, err := os.Stat(filepath.Join(dir, there)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "sub/dir/b")); err == nil {
		t.Error("extracted though it was not to be")
	}
}

func TestAllKindsOfArchives(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	plain := archivetest.Tar(t, archivetest.Entry{Name: "f", Body: "text"})
	write(t, src+"/a.tar", string(plain), 0o600)
	write(t, src+"/a.tgz", string(archivetest.Gzip(t, plain)), 0o600)
	write(t, src+"/g.gz", string(archivetest.Gzip(t, []byte("text"))), 0o600)
	for tool, suffix := range map[string]string{"bzip2": ".tar.bz2", "xz": ".tar.xz"} {
		cmd := exec.Command(tool, "-c")
		cmd.Stdin = bytes.NewReader(plain)
		out, err := cmd.Output()
		if err != nil {
			t.Logf("%s: %v; that kind is not tested", tool, err)
			continue
		}
		write(t, src+"/a"+suffix, string(out), 0o600)
	}
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	f, err := w.Create("d/f")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(f, "text")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, src+"/a.zip", z.String(), 0o600)
	files, _ := filepath.Glob(src + "/*")
	for _, file := range files {
		dir := t.TempDir()
		if err := run(t, dir, URI{Value: file, Extract: true}); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		switch filepath.Ext(file) {
		case ".zip":
			check(t, dir+"/d/f", "text", 0)
		case ".gz":
			check(t, dir+"/g", "text", 0)
		default:
			check(t, dir+"/f", "text", 0)
		}
	}
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	all := archivetest.HostileTars(t)
	for _, small := range []string{"many", "big", "nothing but headers", "hole"} {
		delete(all, small) // below the limits of a sandbox
	}
	for name, archive := range all {
		outer := t.TempDir()
		dir, src := filepath.Join(outer, "sandbox"), filepath.Join(t.TempDir(), "a.tar")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, src, string(archive), 0o600)
		if err := run(t, dir, URI{Value: src, Extract: true}); err == nil {
			t.Errorf("%s: extracted", name)
		}
		if list, err := os.ReadDir(outer); err != nil || len(list) != 1 {
			t.Errorf("%s: something escaped: %v %v", name, list, err)
		}
		if _, err := os.Stat("/tmp/escaped-by-a-test"); err == nil {
			t.Errorf("%s: escaped to /tmp", name)
			os.Remove("/tmp/escaped-by-a-test")
		}
	}
	// A link that was there before is replaced, not followed.
	outer := t.TempDir()
	dir := filepath.Join(outer, "sandbox")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../victim", dir+"/plain"); err != nil {
		t.Fatal(err)
	}
	src := write(t, filepath.Join(t.TempDir(), "plain"), "x", 0o600)
	if err := run(t, dir, URI{Value: src}); err != nil {
		t.Fatal(err)
	}
	check(t, dir+"/plain", "x", 0)
	if _, err := os.Stat(outer + "/victim"); err == nil {
		t.Error("the link was followed")
	}
}

func TestBadURIs(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	notArchive := write(t, src+"/text.tar.gz", "text", 0o600)
	for uri, want := range map[URI]string{
		{Value: "file:///no/such"}:                           "no such file",
		{Value: "/"}:                                         "no file name",
		{Value: "relative"}:                                  "a relative path",
		{Value: "hdfs://a/b"}:                                `scheme "hdfs" is not supported`,
		{Value: "file://host/x"}:                             "absolute path",
		{Value: src}:                                         "not a regular file",
		{Value: notArchive, Extract: true}:                   "extracting",
		{Value: notArchive, OutputFile: "../x"}:              "not a path inside",
		{Value: notArchive, OutputFile: "/x"}:                "not a path inside",
		{Value: notArchive, OutputFile: "x/"}:                "not a path inside",
		{Value: "http://127.0.0.1:1/x"}:                      "refused",
		{Value: "http://user:password@127.0.0.1:1/x"}:        "user:xxxxx@",
		{Value: "http://127.0.0.1:1/"}:                       "no file name",
		{Value: notArchive, OutputFile: "a/../../../escape"}: "not a path inside",
	} {
		err := run(t, t.TempDir(), uri)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "password@") {
			t.Errorf("%+v: %v, not %q", uri, err, want)
		}
	}
}

func TestDownload(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	archive := archivetest.Gzip(t, archivetest.Tar(t, archivetest.Entry{Name: "f", Body: "text"}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a.tar.gz":
			_, _ = w.Write(archive)
		case "/there":
			http.Redirect(w, r, "/a.tar.gz", http.StatusFound)
		case "/stall":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("begin"))
			_ = http.NewResponseController(w).Flush()
			<-block
		case "/short":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("begin"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	defer close(block)
	dir := t.TempDir()
	if err := run(t, dir, URI{Value: server.URL + "/a.tar.gz", Extract: true}, URI{Value: server.URL + "/there", OutputFile: "x"}); err != nil {
		t.Fatal(err)
	}
	check(t, dir+"/f", "text", 0)
	check(t, dir+"/x", string(archive), 0o644)
	for path, want := range map[string]string{"/missing": "404 Not Found", "/stall": "no progress for 200ms", "/short": "EOF"} {
		stall := time.Minute
		if path == "/stall" {
			stall = 200 * time.Millisecond
		}
		if err := runStalling(t, stall, t.TempDir(), URI{Value: server.URL + path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", path, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	err := Run(ctx, Job{Dir: t.TempDir(), URIs: []URI{{Value: server.URL + "/stall"}}, StallTimeout: time.Minute, Log: io.Discard})
	if err == nil {
		t.Error("a cancelled download succeeded")
	}
}

func TestRightsOfTheUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can fetch as another user")
	}
	u, err := container.LookupUser("nobody")
	if err != nil {
		t.Skip("there is no user nobody")
	}
	top := testkit.ShortDir(t)
	dir := filepath.Join(top, "sandbox")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, id := range map[string]int{top: 0, dir: int(u.UID)} {
		if err := os.Chown(path, id, int(u.GID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, top+"/secret", "secret", 0o600)
	write(t, top+"/open.tar", string(archivetest.Tar(t, archivetest.Entry{Name: "d/f", Body: "x"})), 0o644)
	fetch := func(name string) error {
		return Run(t.Context(), Job{Dir: dir, User: u, StallTimeout: time.Minute, Log: io.Discard, URIs: []URI{{Value: top + "/" + name, Extract: true}}})
	}
	if err := fetch("secret"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the user's rights do not count: %v", err)
	}
	if err := fetch("open.tar"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("find", dir, "-not", "-user", "nobody").Output()
	if err != nil || len(out) != 0 {
		t.Errorf("not the user's: %s %v", out, err)
	}
	// This thread's rights are as before.
	if _, err := os.ReadFile(top + "/secret"); err != nil {
		t.Error(err)
	}
}
