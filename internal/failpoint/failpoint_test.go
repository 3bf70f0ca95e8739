package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// Every point that is passed is in the trail, and each pass can be armed by itself.
func TestTrail(t *testing.T) {
	trail := filepath.Join(t.TempDir(), "trail")
	spec := "b*=record(" + trail + ")"
	ForTest(t, spec)
	for _, name := range []string{"a", "b/one", "b/two", "b/one"} {
		if err := Inject(name); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Trail(trail)
	if want := []Pass{{"b/one", 1}, {"b/two", 1}, {"b/one", 2}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	ForTest(t, spec+";"+strings.ReplaceAll(got[2].Kill(), "kill", "error(there)"))
	if err := Inject("b/", "one"); err != nil {
		t.Error(err)
	}
	if err := Inject("b/", "one"); err == nil {
		t.Error("the second pass was not armed")
	}
}

func TestOffByDefault(t *testing.T) {
	if err := Inject("a"); err != nil || Hits("a") != 0 {
		t.Fatal(err)
	}
}

func TestBadGrammar(t *testing.T) {
	for _, s := range []string{"a", "=off", "a=fly", "a=0*off", "a=x*off", "a=error(x", "a=sleep(1)", "a=record"} {
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

// A helper program gets the points of its own and nothing else of ours.
func TestEnviron(t *testing.T) {
	t.Setenv(EnvVar, "ours=kill")
	want := []string{EnvVar + "=a=kill"}
	if RaceVar != "" {
		t.Setenv(RaceVar, "atexit_sleep_ms=7")
		want = append(want, RaceVar+"=atexit_sleep_ms=7")
	}
	if got := Environ("a=kill"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Environ(""); got == nil || !slices.Equal(got, want[1:]) {
		t.Errorf("%#v, want %v", got, want[1:])
	}
}
