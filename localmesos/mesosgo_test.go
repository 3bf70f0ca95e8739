package localmesos

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMesosGoExample runs mesos-go's own example framework, with its own executor, as
// it is. Its module knows no dependencies; testdata/mesosgo names those of its time:
// later versions of the Prometheus client lack what it calls.
func TestMesosGoExample(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two programs and runs a thousand tasks, which takes some seconds; leave -short out")
	}
	t.Parallel()
	bin := buildMesosGo(t)
	const tasks, limit = 1000, time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := Start(ctx, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var log bytes.Buffer
	// Its default form, protobuf: the JSON decoder of this version stops at the
	// capability QUOTA_V2, which every Mesos since 1.9 has.
	run := exec.CommandContext(ctx, filepath.Join(bin, "example-scheduler"), "-url", c.MasterURL()+"/api/v1/scheduler",
		"-executor", filepath.Join(bin, "example-executor"), "-exec.image", "", "-server.address", "127.0.0.1", "-metrics.port", "0",
		"-tasks", strconv.Itoa(tasks), "-cpu", "0.001", "-memory", "1", "-exec.cpu", "0.01", "-exec.memory", "32", "-failoverTimeout", "0s")
	run.Stdout, run.Stderr = &log, &log
	// Having cancelled its own context it says so, and exits with 1.
	err = run.Run()
	text := log.String()
	if ctx.Err() != nil || !strings.Contains(text, "mission accomplished") || strings.Contains(text, "unexpected state") {
		t.Fatalf("%v\n%s", err, text[max(0, len(text)-5000):])
	}
	t.Logf("%d tasks took %s", tasks, time.Since(began).Round(time.Millisecond))
}

// buildMesosGo returns a directory with example-scheduler and example-executor.
func buildMesosGo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join("testdata", "mesosgo", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 5 * time.Minute // downloads, and a first compilation
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tool := func(args ...string) (string, error) {
		run := exec.CommandContext(ctx, "go", args...)
		run.Dir = dir
		// The flags of this build are not for that module.
		run.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
		text, err := run.CombinedOutput()
		return string(text), err
	}
	if text, err := tool("mod", "download"); err != nil {
		t.Skipf("mesos-go's examples, or what they import, are not to be had: %v\n%s", err, text)
	}
	const path = "github.com/mesos/mesos-go/api/v1/cmd/"
	if text, err := tool("build", "-o", "bin/", path+"example-scheduler", path+"example-executor"); err != nil {
		t.Fatalf("building mesos-go's examples: %v\n%s", err, text)
	}
	return filepath.Join(dir, "bin")
}
