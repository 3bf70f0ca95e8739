package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		_ = Inject("child")
		_ = Inject("child")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTermsAreUsedInOrder(t *testing.T) {
	ForTest(t, "a=2*off->error(disk full)->2*error(later) ; b = sleep(1ns)")
	want := []string{"", "", "disk full", "later", "later", "", ""}
	for i, w := range want {
		err := Inject("a")
		if (err == nil) != (w == "") {
			t.Fatalf("pass %d: %v, want %q", i, err, w)
		}
		if err != nil && (!errors.Is(err, ErrInjected) || !strings.HasSuffix(err.Error(), w)) {
			t.Fatalf("pass %d: %v", i, err)
		}
	}
	if Inject("b") != nil || Inject("unknown") != nil {
		t.Error("unexpected error")
	}
	if Hits("a") != len(want) || Hits("b") != 1 {
		t.Errorf("hits a=%d b=%d", Hits("a"), Hits("b"))
	}
}

func TestOffByDefault(t *testing.T) {
	if err := Inject("a"); err != nil || Hits("a") != 0 {
		t.Fatal(err)
	}
}

func TestBadGrammar(t *testing.T) {
	for _, s := range []string{"a", "=off", "a=fly", "a=0*off", "a=x*off", "a=error(x", "a=sleep(1)"} {
		if _, err := parse(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestKillFromEnvironment(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FAILPOINT_CHILD=1", EnvVar+"=child=off->kill")
	err := cmd.Run()
	var ee *exec.ExitError
	if !errors.As(err, &ee) || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("got %v, want SIGKILL", err)
	}
}

func BenchmarkInjectOff(b *testing.B) {
	for b.Loop() {
		_ = Inject("x")
	}
}
