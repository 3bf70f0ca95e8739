// Package store keeps the scheduler's records in one bbolt file: small values
// under string keys, each with a version, changed by compare-and-set in
// transactions that are on the disk when they return. It is for the scheduler's
// controller, which declares the interface that it needs; it must never know
// what the values mean.
package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// MaxValue is the largest value in bytes that a store takes. It is what
// ZooKeeper takes by default (jute.maxbuffer), less room for keys, so that a
// file can be moved there.
const MaxValue = 1<<20 - 16<<10

// Errors of Commit. ErrDeposed means that another scheduler has claimed the
// store since: the caller must stop. ErrConflict means that a record is not at
// the version that the caller knows.
var (
	ErrConflict = errors.New("record was changed by somebody else")
	ErrDeposed  = errors.New("another scheduler has taken over this store")
)

// Epoch numbers the claims of a store; a later one is larger.
type Epoch uint64

// Record is a stored value. Version is the revision of the commit that wrote it, never 0.
type Record struct {
	Key     string
	Value   []byte
	Version uint64
}

// Op changes one record: a nil Value deletes it. Expect is the version that the
// record must have; 0 means that it must not exist.
type Op struct {
	Key    string
	Value  []byte
	Expect uint64
}

// Bolt is a store in a bbolt file. It is safe for concurrent use.
type Bolt struct {
	db   *bolt.DB
	path string
}

var (
	bucketRecords = []byte("records")
	bucketMeta    = []byte("meta")
	keyEpoch      = []byte("epoch")
	keyRevision   = []byte("revision")
	keyFormat     = []byte("format")
)

// format is the layout that this code reads and writes.
const format = 1

// lockTimeout is how long Open waits for another process to let go of the
// file: long enough for a predecessor that is just ending.
const lockTimeout = 3 * time.Second

// Open opens the file at path, and makes it and its directory when they are not
// there, readable by their owner only. A file that another process holds is an error.
func Open(path string) (*Bolt, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the store's directory: %w; choose another with --data-dir", err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("store %s is in use by another scheduler: stop that one or choose another --data-dir", path)
	case err != nil:
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	b := &Bolt{db: db, path: path}
	if err := b.prepare(); err != nil {
		db.Close()
		return nil, err
	}
	return b, nil
}

func (b *Bolt) prepare() error {
	err := b.db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(bucketRecords); err != nil {
			return err
		}
		meta, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return err
		}
		switch f := number(meta.Get(keyFormat)); f {
		case format:
			return nil
		case 0:
			return meta.Put(keyFormat, bytesOf(format))
		default:
			return fmt.Errorf("its format is %d, this program knows %d only: use the program that wrote it", f, format)
		}
	})
	if err != nil {
		return fmt.Errorf("prepare store %s: %w", b.path, err)
	}
	return nil
}

// Close lets go of the file; commits that have returned are in it.
func (b *Bolt) Close() error { return b.db.Close() }

// Claim makes the caller the only one whose commits are taken, and returns its epoch.
func (b *Bolt) Claim(_ context.Context) (Epoch, error) {
	var e uint64
	err := b.db.Update(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		e = number(meta.Get(keyEpoch)) + 1
		return meta.Put(keyEpoch, bytesOf(e))
	})
	if err != nil {
		return 0, fmt.Errorf("claim store %s: %w", b.path, err)
	}
	return Epoch(e), nil
}

// Load returns all records in the order of their keys, and the revision of the last commit.
func (b *Bolt) Load(ctx context.Context) ([]Record, uint64, error) {
	var out []Record
	var revision uint64
	err := b.db.View(func(tx *bolt.Tx) error {
		revision = number(tx.Bucket(bucketMeta).Get(keyRevision))
		return tx.Bucket(bucketRecords).ForEach(func(k, v []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if len(v) < 8 {
				return fmt.Errorf("record %q is cut short: restore the file from a copy", k)
			}
			out = append(out, Record{Key: string(k), Version: number(v[:8]), Value: append([]byte{}, v[8:]...)})
			return nil
		})
	})
	if err != nil {
		return nil, 0, fmt.Errorf("load store %s: %w", b.path, err)
	}
	return out, revision, nil
}

// Commit makes all changes or none, and returns its revision, which becomes the
// version of the records written. Revisions only grow. When Commit returns
// without an error the changes are on the disk.
func (b *Bolt) Commit(_ context.Context, epoch Epoch, ops []Op) (uint64, error) {
	var revision uint64
	err := b.db.Update(func(tx *bolt.Tx) error {
		meta, records := tx.Bucket(bucketMeta), tx.Bucket(bucketRecords)
		if number(meta.Get(keyEpoch)) != uint64(epoch) {
			return ErrDeposed
		}
		revision = number(meta.Get(keyRevision)) + 1
		for i := range ops {
			if err := change(records, &ops[i], revision); err != nil {
				return err
			}
		}
		return meta.Put(keyRevision, bytesOf(revision))
	})
	if err != nil {
		return 0, fmt.Errorf("write to store %s: %w", b.path, err)
	}
	return revision, nil
}

func change(records *bolt.Bucket, op *Op, revision uint64) error {
	var current uint64
	if v := records.Get([]byte(op.Key)); len(v) >= 8 {
		current = number(v[:8])
	}
	if current != op.Expect {
		return fmt.Errorf("record %q is at version %d, not %d: %w", op.Key, current, op.Expect, ErrConflict)
	}
	if op.Value == nil {
		return records.Delete([]byte(op.Key))
	}
	if len(op.Value) > MaxValue {
		return fmt.Errorf("record %q has %d bytes, at most %d are possible", op.Key, len(op.Value), MaxValue)
	}
	return records.Put([]byte(op.Key), append(bytesOf(revision), op.Value...))
}

func number(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func bytesOf(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
