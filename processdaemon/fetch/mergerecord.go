package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
	"tandem/internal/safepath"
)

// errPowerCut says why a merge is not completed.
var errPowerCut = errors.New("the machine was started anew meanwhile")

// merges holds the records of merges that are under way, by the hash of the directory.
func (f *Fetcher) merges() string { return filepath.Join(f.dir, "merging") }

// merge puts the content of from, which r.From names, into a directory that exists, and the marker.
func (f *Fetcher) merge(ctx context.Context, r mergeRecord, from *os.Root) error {
	to, err := safepath.OpenRoot(r.Out, false)
	if err != nil {
		return err
	}
	defer to.Close()
	m := &merge{mergeRecord: r, from: from, to: to, plainOnly: f.plainOnly}
	if err := m.plan(ctx); err != nil {
		return err
	}
	b, err := m.bytes()
	if err != nil {
		return err
	}
	record := filepath.Join(f.merges(), hash(r.Out))
	if err := atomicfile.WriteVolatile(record, b, 0o600); err != nil {
		return err
	}
	defer f.drop(record)
	return f.carryOut(ctx, m)
}

func (f *Fetcher) carryOut(ctx context.Context, m *merge) error {
	if err := m.run(ctx); err != nil {
		if m.Ours {
			f.recordOutput(m.Out)
		}
		return err
	}
	b, err := json.Marshal(m.Mark)
	if err == nil {
		err = failpoint.Inject("fetch/merged")
	}
	if err == nil {
		err = replaceIn(m.to, m.Marker, b)
	}
	if err != nil {
		err = m.undo(len(m.Steps), err)
	}
	if m.Ours {
		f.recordOutput(m.Out)
	}
	return err
}

func (f *Fetcher) drop(record string) {
	if err := os.Remove(record); err != nil && !os.IsNotExist(err) {
		f.log.Warn("the record of a merge cannot be removed", "path", record, "err", err)
	}
}

// finishMerges ends what a daemon that was killed had begun: it goes on, and where that
// is not possible, or where a power cut may have emptied what is new, it goes back.
func (f *Fetcher) finishMerges() {
	entries, err := os.ReadDir(f.merges())
	if err != nil {
		f.log.Warn("interrupted merges cannot be looked for", "err", err)
		return
	}
	for _, e := range entries {
		record := filepath.Join(f.merges(), e.Name())
		var r mergeRecord
		b, err := os.ReadFile(record)
		if err == nil && json.Unmarshal(b, &r) == nil && r.valid(e.Name()) {
			if err := f.finishMerge(r); err != nil {
				f.log.Warn("an interrupted merge was not completed", "dir", r.Out, "err", err)
			}
		}
		f.drop(record)
	}
}

func (f *Fetcher) finishMerge(r mergeRecord) error {
	parent, err := safepath.OpenRoot(filepath.Dir(r.From), false)
	if err != nil {
		return err
	}
	defer parent.Close()
	from, err := parent.OpenRoot(filepath.Base(r.From))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := safepath.OpenRoot(r.Out, false)
	if err != nil {
		return err
	}
	defer to.Close()
	m := &merge{mergeRecord: r, from: from, to: to, plainOnly: f.plainOnly}
	if r.Boot != f.boot {
		return m.undo(len(m.Steps), errPowerCut)
	}
	return f.carryOut(context.Background(), m)
}
