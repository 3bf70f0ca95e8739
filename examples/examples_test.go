// Package examples_test checks that the examples are what they say: artifacts
// without a single warning, archives that run, images that can be made.
package examples_test

import (
	"bytes"
	"crypto/sha256"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tandem/api"
)

func TestArtifacts(t *testing.T) {
	t.Parallel()
	docs, _, err := api.DecodePaths([]string{"."}, nil, api.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		if ns := d.Object.GetMeta().Namespace; ns != "test" {
			t.Errorf("%s is in namespace %s", d.Ref(), ns)
		}
	}
	var cpus, mem float64
	for _, d := range docs {
		app, ok := d.Object.(*api.Application)
		if dep, is := d.Object.(*api.Deployment); is {
			app, ok = dep.Application(dep.Metadata.Name), true
		}
		if !ok {
			continue
		}
		pod := &app.Spec.Template.Spec
		for i := range pod.Containers {
			r, _ := pod.Containers[i].Resources.Task()
			cpus, mem = cpus+r.CPUs*float64(app.Spec.Instance), mem+r.MemMB*float64(app.Spec.Instance)
		}
		for i := range pod.Processes {
			r, _ := pod.Processes[i].Resources.Task()
			cpus, mem = cpus+r.CPUs*float64(app.Spec.Instance), mem+r.MemMB*float64(app.Spec.Instance)
		}
	}
	t.Logf("all examples ask for %.1f cores and %.0f MiB", cpus, mem)
	if cpus > 2 || mem > 600 {
		t.Errorf("%.1f cores and %.0f MiB are more than a small machine has", cpus, mem)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		if !bytes.Contains(readme, []byte("`"+filepath.Base(d.Source)+"`")) {
			t.Errorf("README.md does not mention %s", d.Source)
		}
	}
}

// build runs build.sh without an engine, which leaves the containers out.
func build(t *testing.T, out string) string {
	t.Helper()
	for _, program := range []string{"redis-server", "busybox", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	cmd := exec.Command("./build.sh", out)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+filepath.Join(out, "no.sock"))
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(text)
}

func TestBuild(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	text := build(t, one)
	if !strings.Contains(text, "left out hello.application.yaml: it needs containers, and there is no Docker Engine") {
		t.Errorf("says nothing of the containers:\n%s", text)
	}
	docs, _, err := api.DecodePaths([]string{filepath.Join(one, "artifacts")}, nil, api.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		if bytes.Contains(d.Raw, []byte("/OUTDIR/")) || bytes.Contains(d.Raw, []byte("tandem-examples/")) {
			t.Errorf("%s: %s", d.Source, d.Raw)
		}
		app, ok := d.Object.(*api.Application)
		if !ok {
			continue
		}
		for _, u := range app.Spec.Template.Spec.Processes[0].URIs {
			if _, err := os.Stat(strings.TrimPrefix(u.Value, "file://")); err != nil {
				t.Errorf("%s: %v", d.Source, err)
			}
		}
	}

	// The same again: the same bytes, or what agents have fetched would be stale.
	build(t, two)
	for _, name := range []string{"redis-v1.tar.gz", "web-v1.tar.gz", "images/consul.tar", "images/busybox.tar"} {
		a, err1 := os.ReadFile(filepath.Join(one, name))
		b, err2 := os.ReadFile(filepath.Join(two, name))
		if err1 != nil || err2 != nil || sha256.Sum256(a) != sha256.Sum256(b) {
			t.Errorf("%s differs between two builds (%v, %v)", name, err1, err2)
		}
	}
	redisScripts(t, one)
}

// redisScripts runs the archive's own scripts as the process daemon does.
func redisScripts(t *testing.T, out string) {
	t.Helper()
	dir := t.TempDir()
	if text, err := exec.Command("tar", "-xzf", filepath.Join(out, "redis-v1.tar.gz"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	work := filepath.Join(dir, "redis")
	script := func(name string) (string, error) {
		cmd := exec.Command("./" + name)
		cmd.Dir = work
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "work_dir=" + work, "pid_file=" + filepath.Join(work, "redis.pid"), "hostip=127.0.0.1",
			"PORT0=" + port, "namespace=test", "processname=redis", "instanceid=0"}
		// A file, because the server keeps a pipe open for as long as it lives.
		log, err := os.Create(filepath.Join(dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		err = cmd.Run()
		text, _ := os.ReadFile(log.Name())
		return string(text), err
	}
	if text, err := script("start.sh"); err == nil || !strings.Contains(text, "in use") {
		t.Errorf("with a taken port: %v\n%s", err, text)
	}
	l.Close()
	if text, err := script("start.sh"); err != nil {
		t.Fatalf("start: %v\n%s", err, text)
	}
	if text, err := script("stop.sh"); err != nil {
		t.Errorf("stop: %v\n%s", err, text)
	}
	if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
		conn.Close()
		t.Error("redis still listens after stop.sh")
	}
}
