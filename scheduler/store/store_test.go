package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("STORE_TEST_WRITER"); path != "" {
		writeForever(path)
	}
	os.Exit(m.Run())
}

func open(t testing.TB, path string) (*Bolt, Epoch) {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	e, err := b.Claim(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return b, e
}

// TestCommitModel compares the store with a map, reopening it now and then.
func TestCommitModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprintf("s%d", run))
		b, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		b.db.NoSync = true
		defer func() { b.Close() }()
		e, _ := b.Claim(context.Background())
		model := map[string]Record{}
		keys := rapid.SampledFrom([]string{"a", "b", "c/d"})
		for range rapid.IntRange(1, 15).Draw(t, "commits") {
			if rapid.IntRange(0, 9).Draw(t, "reopen") == 0 {
				b.Close()
				if b, err = Open(path); err != nil {
					t.Fatal(err)
				}
				b.db.NoSync = true
				if e, err = b.Claim(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			next := map[string]Record{}
			for k, v := range model {
				next[k] = v
			}
			var ops []Op
			good := true
			for _, k := range rapid.SliceOfNDistinct(keys, 1, 3, rapid.ID[string]).Draw(t, "keys") {
				op := Op{Key: k, Expect: model[k].Version}
				if rapid.IntRange(0, 5).Draw(t, "stale") == 0 {
					op.Expect++
					good = false
				}
				if rapid.Bool().Draw(t, "put") {
					op.Value = []byte(rapid.StringN(0, 5, -1).Draw(t, "value"))
				}
				ops = append(ops, op)
			}
			rev, err := b.Commit(context.Background(), e, ops)
			if good != (err == nil) {
				t.Fatalf("commit %+v: %v", ops, err)
			}
			if err != nil {
				if !errors.Is(err, ErrConflict) {
					t.Fatal(err)
				}
				continue
			}
			for _, op := range ops {
				if delete(next, op.Key); op.Value != nil {
					next[op.Key] = Record{Key: op.Key, Value: op.Value, Version: rev}
				}
			}
			model = next
		}
		got, _, err := b.Load(context.Background())
		if err != nil || len(got) != len(model) {
			t.Fatalf("loaded %v, want %v (%v)", got, model, err)
		}
		for _, r := range got {
			if w := model[r.Key]; string(w.Value) != string(r.Value) || w.Version != r.Version {
				t.Fatalf("loaded %v, want %v", r, w)
			}
		}
	})
}

func TestDeposedWriterIsRefused(t *testing.T) {
	t.Parallel()
	b, old := open(t, filepath.Join(t.TempDir(), "s"))
	if _, err := b.Claim(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err := b.Commit(context.Background(), old, []Op{{Key: "k", Value: []byte("v")}})
	if !errors.Is(err, ErrDeposed) {
		t.Fatalf("got %v, want ErrDeposed", err)
	}
	if recs, _, _ := b.Load(context.Background()); len(recs) != 0 {
		t.Fatalf("the refused write left %v", recs)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Run("a file in use", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(dir, "used")
		open(t, path)
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "in use by another scheduler") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("another format", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(dir, "format")
		b, _ := open(t, path)
		err := b.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, bytesOf(99)) })
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "format is 99") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("no database", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(dir, "text")
		if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("a directory below a file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(dir, "plain")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(filepath.Join(path, "s")); err == nil || !strings.Contains(err.Error(), "--data-dir") {
			t.Fatalf("got %v", err)
		}
	})
}

func TestTooLargeValueIsRefusedWhole(t *testing.T) {
	t.Parallel()
	b, e := open(t, filepath.Join(t.TempDir(), "s"))
	_, err := b.Commit(context.Background(), e, []Op{{Key: "a", Value: []byte("x")}, {Key: "b", Value: make([]byte, MaxValue+1)}})
	if err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Fatalf("got %v", err)
	}
	if recs, _, _ := b.Load(context.Background()); len(recs) != 0 {
		t.Fatalf("half a commit: %v", recs)
	}
}

// writeForever commits the same number to two records, and reports each
// commit after it has returned.
func writeForever(path string) {
	b, err := Open(path)
	if err != nil {
		panic(err)
	}
	e, err := b.Claim(context.Background())
	if err != nil {
		panic(err)
	}
	recs, _, _ := b.Load(context.Background())
	versions := map[string]uint64{}
	for _, r := range recs {
		versions[r.Key] = r.Version
	}
	for i := 1; ; i++ {
		n := fmt.Appendf(nil, "%d", i)
		rev, err := b.Commit(context.Background(), e, []Op{
			{Key: "x", Value: n, Expect: versions["x"]}, {Key: "y", Value: n, Expect: versions["y"]},
		})
		if err != nil {
			panic(err)
		}
		versions["x"], versions["y"] = rev, rev
		fmt.Println(rev)
	}
}

// TestKilledWriter kills a writer at arbitrary points: what it reported is
// there, and no commit is there by half.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	for round := range 10 {
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Env = append(os.Environ(), "STORE_TEST_WRITER="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var reported uint64
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			fmt.Sscan(lines.Text(), &reported)
			if i == 3*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		cmd.Wait()
		b, err := Open(path)
		if err != nil {
			t.Fatalf("after a kill: %v", err)
		}
		recs, rev, err := b.Load(context.Background())
		b.Close()
		if err != nil || len(recs) != 2 {
			t.Fatalf("round %d: %v, %v", round, recs, err)
		}
		if string(recs[0].Value) != string(recs[1].Value) || recs[0].Version != recs[1].Version {
			t.Errorf("half a commit is there: %v", recs)
		}
		if rev < reported {
			t.Errorf("commit %d was reported, %d is the last one there", reported, rev)
		}
	}
}
