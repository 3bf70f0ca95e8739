package journal

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// awaitMark waits until the watch tells of an owner.
func awaitMark(t *testing.T, w *Watch, want Mark) {
	t.Helper()
	limit := time.After(15 * time.Second)
	for {
		select {
		case _, ok := <-w.C:
			if slices.Contains(w.Take(), want) {
				return
			}
			if !ok {
				t.Fatal("the watch has ended")
			}
		case <-limit:
			t.Fatalf("nobody told of %s", want)
		}
	}
}

// TestWatchTellsOfADeath: an owner that is killed is told of, and is dead by then or a moment later.
// A living one is told of as little as it is dead.
func TestWatchTellsOfADeath(t *testing.T) {
	t.Parallel()
	j := open(t)
	w, err := j.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	lives := own(t, j, "lives")
	if err := lives.PutVolatile("process", "x", nil); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+j.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line)
	}
	if marks := w.Take(); len(marks) > 0 {
		t.Errorf("told of %v, who live", marks)
	}
	if dead, live, err := j.Dead("child", "lives"); len(dead) > 0 || len(live) != 2 || err != nil {
		t.Errorf("%v %v %v", dead, live, err)
	}
	_ = cmd.Process.Kill()
	awaitMark(t, w, "child")
	var dead []string
	for end := time.Now().Add(15 * time.Second); len(dead) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if dead, _, err = j.Dead("child"); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	if all, _, err := j.Dead(); !slices.Equal(dead, []string{"child"}) || !slices.Equal(all, dead) || err != nil {
		t.Errorf("%v, of all %v, %v", dead, all, err)
	}
	claim, err := j.Claim("child")
	if err != nil {
		t.Fatal(err)
	}
	if dead, live, err := j.Dead("child"); len(dead)+len(live) > 0 || err != nil {
		t.Errorf("while a reaper is at work: %v %v %v", dead, live, err)
	}
	if err := claim.Delete("process", "t1"); err != nil {
		t.Fatal(err)
	}
	if err := claim.Close(); err != nil {
		t.Fatal(err)
	}
	awaitMark(t, w, "child")
	if dead, live, err := j.Dead("child"); len(dead)+len(live) > 0 || err != nil {
		t.Errorf("when nothing is left: %v %v %v", dead, live, err)
	}
}

// TestWatchEndsWithItsDirectory, and says so: nothing can be told then.
func TestWatchEndsWithItsDirectory(t *testing.T) {
	t.Parallel()
	j := open(t)
	w, err := j.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := os.Remove(j.owners()); err != nil {
		t.Fatal(err)
	}
	limit := time.After(15 * time.Second)
	for ok := true; ok; {
		select {
		case _, ok = <-w.C:
		case <-limit:
			t.Fatal("the watch goes on")
		}
	}
	if _, err := j.Watch(); err == nil {
		t.Error("what is not there is watched")
	}
}

// TestDeadLooksAtTheOthersToo: an owner about whom nothing can be told does not keep it from the others.
func TestDeadLooksAtTheOthersToo(t *testing.T) {
	t.Parallel()
	j := open(t)
	for _, name := range []string{"a", "b"} {
		o := own(t, j, name)
		if err := o.PutVolatile("process", "x", nil); err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(j.lockPath("a")); err != nil {
		t.Fatal(err)
	}
	// A link to itself cannot be opened by anybody, root included.
	if err := os.Symlink("a.lock", j.lockPath("a")); err != nil {
		t.Fatal(err)
	}
	if dead, _, err := j.Dead(); !slices.Equal(dead, []string{"b"}) || err == nil {
		t.Errorf("%v %v", dead, err)
	}
}
