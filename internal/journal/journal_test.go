package journal

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

const childEnv = "JOURNAL_TEST_CHILD"

// TestMain doubles as an owner in another process, which the tests kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		j, err := Open(dir)
		if err == nil {
			var o *Owner
			if o, err = j.Own("child"); err == nil {
				err = o.Put("process", "t1", map[string]string{"a": "b"})
			}
		}
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Hour) // a program that waits for nothing is ended as deadlocked
	}
	os.Exit(m.Run())
}

func open(t *testing.T) *Journal {
	t.Helper()
	j, err := Open(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func own(t *testing.T, j *Journal, name string) *Owner {
	t.Helper()
	o, err := j.Own(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func ids(t *testing.T, recs []Record, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, r := range recs {
		s = append(s, r.Owner+"/"+r.Kind+"/"+r.ID)
	}
	return strings.Join(s, " ")
}

func TestLifeOfARecord(t *testing.T) {
	t.Parallel()
	j := open(t)
	o := own(t, j, "0.web.test.c.1")
	for _, id := range []string{"b", "a/../c"} {
		if err := o.Put("container", id, map[string]int{"n": 1}); err != nil {
			t.Fatal(err)
		}
	}
	recs, err := j.Records()
	if got := ids(t, recs, err); got != "0.web.test.c.1/container/b 0.web.test.c.1/container/a/../c" {
		t.Fatal(got)
	}
	if err := o.Put("container", "b", map[string]int{"n": 2}); err != nil {
		t.Fatal(err)
	}
	var data map[string]int
	if ok, err := o.Get("container", "b", &data); !ok || err != nil || data["n"] != 2 {
		t.Fatal(ok, err, data)
	}
	recs, err = j.Abandoned()
	if got := ids(t, recs, err); got != "" {
		t.Fatalf("a live owner's records are abandoned: %s", got)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if recs, err = j.Abandoned(); len(recs) != 2 {
		t.Fatal(recs, err)
	}
	c, err := j.Claim("0.web.test.c.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Own("0.web.test.c.1"); !errors.Is(err, ErrOwned) {
		t.Fatalf("own while claimed: %v", err)
	}
	for _, r := range recs {
		for range 2 {
			if err := c.Delete(r.Kind, r.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{j.owners(), j.records()} {
		if e, _ := os.ReadDir(d); len(e) != 0 {
			t.Errorf("%s: left %v", d, e)
		}
	}
	if err := o.Put("container", "b", nil); err == nil {
		t.Error("put after close")
	}
}

func TestKilledOwnerAbandonsItsRecords(t *testing.T) {
	t.Parallel()
	j := open(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+j.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatal(line)
	}
	if _, err := j.Claim("child"); !errors.Is(err, ErrOwned) {
		t.Errorf("claimed from a living owner: %v", err)
	}
	recs, err := j.Abandoned()
	if got := ids(t, recs, err); got != "" {
		t.Errorf("abandoned while alive: %s", got)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	recs, err = j.Abandoned()
	if got := ids(t, recs, err); got != "child/process/t1" {
		t.Fatalf("after the kill: %q", got)
	}
	own(t, j, "child")
}

func TestRecordOfAnotherBootIsAbandoned(t *testing.T) {
	t.Parallel()
	j := open(t)
	o := own(t, j, "a")
	if err := o.Put("k", "1", nil); err != nil {
		t.Fatal(err)
	}
	later := &Journal{dir: j.dir, boot: "next boot"}
	if recs, err := later.Abandoned(); len(recs) != 1 || err != nil {
		t.Fatal(recs, err)
	}
}

func TestCorruptRecordIsSetAside(t *testing.T) {
	t.Parallel()
	j := open(t)
	o := own(t, j, "a")
	if err := o.Put("k", "good", nil); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{fileName("k", "torn"): `{"kind":"k",`, fileName("k", "x"): `{"kind":"k","id":"y","owner":"a"}`} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A pipe, which nobody waits for.
	if err := unix.Mkfifo(filepath.Join(o.dir, fileName("k", "pipe")), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		recs, err := j.Records()
		if got := ids(t, recs, err); got != "a/k/good" {
			t.Fatal(got)
		}
	}
	if e, _ := os.ReadDir(filepath.Join(j.dir, "corrupt")); len(e) != 3 {
		t.Errorf("set aside: %v", e)
	}
}

func TestOwnRacesCloseSafely(t *testing.T) {
	t.Parallel()
	j := open(t)
	done := make(chan int, 4)
	for range cap(done) {
		go func() {
			got := 0
			for range 200 {
				o, err := j.Own("x")
				if errors.Is(err, ErrOwned) {
					continue
				}
				if err != nil {
					t.Error(err)
					break
				}
				if held, err := j.Owned("x"); !held || err != nil {
					t.Errorf("held %v, %v", held, err)
				}
				got++
				o.Close()
			}
			done <- got
		}()
	}
	total := 0
	for range cap(done) {
		total += <-done
	}
	if total == 0 {
		t.Error("nobody ever owned it")
	}
}

func TestEncodeIsInjectiveAndSafe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		ea, eb := encode(a), encode(b)
		if (a == b) != (ea == eb) {
			t.Fatalf("%q and %q: %q and %q", a, b, ea, eb)
		}
		if strings.ContainsAny(ea, "/\x00") || strings.HasPrefix(ea, ".") || len(ea) > maxName {
			t.Fatalf("%q: unsafe %q", a, ea)
		}
	})
	long := strings.Repeat("x", 300)
	if encode(long) == encode(long+"y") || len(encode(long)) > maxName {
		t.Error("long names")
	}
}

func BenchmarkPutDelete(b *testing.B) {
	j, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	o, err := j.Own("a")
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	for b.Loop() {
		if err := o.Put("k", "1", nil); err != nil {
			b.Fatal(err)
		}
		if err := o.Delete("k", "1"); err != nil {
			b.Fatal(err)
		}
	}
}

// While a reaper is at work, what it has not removed yet is still there to be seen.
func TestClaimedRecordsAreStillLeft(t *testing.T) {
	t.Parallel()
	j, err := Open(filepath.Join(t.TempDir(), "j"))
	if err != nil {
		t.Fatal(err)
	}
	const id = "0.web.test.local.1"
	o, err := j.Own(id)
	if err != nil {
		t.Fatal(err)
	}
	long, err := j.Own("0." + strings.Repeat("long-name.", 30) + "1")
	if err != nil {
		t.Fatal(err)
	}
	left := func(prefix string) []string {
		t.Helper()
		owners, err := j.Left(prefix)
		if err != nil {
			t.Fatal(err)
		}
		return owners
	}
	abandoned := func() int {
		t.Helper()
		recs, err := j.Abandoned()
		if err != nil {
			t.Fatal(err)
		}
		return len(recs)
	}
	if got := left("0."); len(got) > 0 {
		t.Errorf("left %v without records", got)
	}
	for _, owner := range []*Owner{o, long} {
		if err := owner.PutVolatile("process", "t", nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := left("0."); len(got) > 0 || abandoned() != 0 {
		t.Errorf("left %v by living owners, %d abandoned", got, abandoned())
	}
	for _, owner := range []*Owner{o, long} {
		if err := owner.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := left("0.web.test.local."); len(got) != 1 || got[0] != id {
		t.Errorf("left %v", got)
	}
	if got := left("1."); len(got) > 0 {
		t.Errorf("left %v of others", got)
	}
	if got := left("0." + strings.Repeat("long-name.", 30)); len(got) != 1 || got[0] != long.Name() {
		t.Errorf("left %v", got)
	}
	claim, err := j.Claim(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Own(id); !errors.Is(err, ErrOwned) {
		t.Errorf("owned beside a claim: %v", err)
	}
	if _, err := j.Claim(id); !errors.Is(err, ErrOwned) {
		t.Errorf("claimed twice: %v", err)
	}
	if got := left("0.web.test.local."); len(got) != 1 || abandoned() != 2 {
		t.Errorf("while it is cleaned up: left %v, %d abandoned", got, abandoned())
	}
	if err := claim.Delete("process", "t"); err != nil {
		t.Fatal(err)
	}
	if got := left("0.web.test.local."); len(got) != 0 || abandoned() != 1 {
		t.Errorf("after the clean-up: left %v, %d abandoned", got, abandoned())
	}
	if err := claim.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsMadeAheadIsNoRecord: an owner that has a directory, a file for its first record and
// no record has left nothing; the file becomes that record.
func TestWhatIsMadeAheadIsNoRecord(t *testing.T) {
	t.Parallel()
	j := open(t)
	o, err := j.Own("e")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := o.GetReady(); err != nil {
			t.Fatal(err)
		}
	}
	next := o.next
	if _, err := os.Stat(next); err != nil {
		t.Error(err)
	}
	releaseLock(o.lock) // as when it is killed
	if left, err := j.Left("e"); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
	if o, err = j.Own("e"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(next); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next owner of the name keeps it: %v", err)
	}
	if err := o.GetReady(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := o.PutVolatile("process", id, id); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(next); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is not the first record: %v", err)
		}
	}
	recs, err := o.Records()
	if got := ids(t, recs, err); got != "e/process/a e/process/b" {
		t.Error(got)
	}
	if err := errors.Join(o.Delete("process", "a"), o.Delete("process", "b"), o.GetReady(), o.Close()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{j.records(), j.owners()} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: %v %v", dir, entries, err)
		}
	}
	if err := o.GetReady(); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
}
