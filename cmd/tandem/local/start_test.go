package local

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tandem/cmd/tandem/exit"
)

func TestTakenPortNamesPortHolderAndRemedy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	err = checkPorts(context.Background(), []address{{"the scheduler", "127.0.0.1", port, "--listen"}})
	if exit.Of(err) != exit.Refused {
		t.Fatalf("code %d, %v", exit.Of(err), err)
	}
	for _, want := range []string{"port " + strconv.Itoa(port) + " is already used by ", "pid " + strconv.Itoa(os.Getpid()), "--listen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if err := checkPorts(context.Background(), []address{{"agent-2", "127.0.0.2", port, "--agent-port"}}); err != nil {
		t.Errorf("another address of the same machine: %v", err)
	}
}

func TestMissingProgramsAreAllNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none := func(string) (string, error) { return "", errors.New("not found") }
	_, err := findBinaries(filepath.Join(dir, "tandem"), none)
	if exit.Of(err) != exit.Failure {
		t.Fatalf("code %d, %v", exit.Of(err), err)
	}
	for _, want := range []string{"tandem-executor is missing", "tandem-processd is missing", dir, "make build"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	beside := filepath.Join(dir, executorBinary)
	if err := os.WriteFile(beside, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := findBinaries(filepath.Join(dir, "tandem"), func(name string) (string, error) { return "/usr/bin/" + name, nil })
	if err != nil || b.executor != beside || b.processd != "/usr/bin/tandem-processd" {
		t.Errorf("%+v, %v", b, err)
	}
}
