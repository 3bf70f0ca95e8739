package processdaemon

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"tandem/internal/failpoint"
	"tandem/processdaemon/fetch"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// prepare fetches what the URIs name and puts it in place, one after the other:
// a later one may add to the directory of an earlier one. It may be repeated. It
// returns the digests of the contents; places are those of a record that was read.
func (d *Daemon) prepare(ctx context.Context, spec *protocol.Spec, places []string, progress func(string)) ([]string, error) {
	if err := failpoint.Inject("processdaemon/prepare"); err != nil {
		return nil, err
	}
	as, err := lookupAccount(spec.User)
	if err != nil {
		return nil, err
	}
	if d.fetcher == nil && len(spec.URIs) > 0 {
		return nil, errNoCache
	}
	digests := make([]string, len(spec.URIs))
	for i, u := range spec.URIs {
		place := ""
		if i < len(places) {
			place = places[i]
		}
		if digests[i], err = d.fetcher.Provide(ctx, u, place, as.cred, progress); err != nil {
			return nil, fmt.Errorf("uris[%d]: %w", i, err)
		}
	}
	return digests, nil
}

// seal takes what is secret out of the URIs of a record. The places are for
// prepare, should a later daemon read the record before it is done.
func seal(uris []protocol.URI, places []string) ([]protocol.URI, []string) {
	if len(uris) == 0 {
		return uris, places
	}
	out := make([]protocol.URI, len(uris))
	all := make([]string, len(uris))
	withheld := false
	for i, u := range uris {
		out[i], all[i] = fetch.Seal(u)
		if all[i] == "" && i < len(places) {
			all[i] = places[i]
		}
		withheld = withheld || all[i] != ""
	}
	if !withheld {
		all = nil
	}
	return out, all
}

// hold keeps the contents that a task names in the cache, and its directories.
func (d *Daemon) hold(s *protocol.Spec) {
	if d.fetcher == nil {
		return
	}
	var digests []string
	dirs := []string{filepath.Clean(s.WorkPath)}
	for _, u := range s.URIs {
		dirs = append(dirs, filepath.Clean(u.OutputDir))
		if u.Digest != "" {
			digests = append(digests, u.Digest)
		}
	}
	d.fetcher.Hold(s.ID, digests, dirs)
}

// collectEvery is how often the cache is looked through, which is also done after each
// fetch, and the directories that nobody uses.
const collectEvery = 10 * time.Minute

func (d *Daemon) collectLoop() {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		d.fetcher.Collect()
		d.fetcher.Confirm()
		d.fetcher.CollectOutputs(d.opts.Workspace)
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return
		}
	}
}

// unpacker starts the processes that unpack. They are the daemon's own children, and its own to collect.
func (d *Daemon) unpacker() *unpack.Runner {
	return &unpack.Runner{Program: d.opts.Keeper, Log: d.log, Track: func() func(int) func() {
		d.kids.fork.RLock()
		return func(pid int) func() {
			defer d.kids.fork.RUnlock()
			if pid == 0 {
				return func() {}
			}
			d.kids.track(pid)
			return func() { d.kids.untrack(pid) }
		}
	}}
}

// errNoCache says that the daemon started without its cache; Info tells why.
var errNoCache = fail(protocol.CodeInternal, "the process daemon cannot use its cache; mend its data directory and restart it")

// Fetch brings what the URIs name into the cache, without putting it in place. It is for
// tasks of a user: files of the agent are read with that user's rights. Empty is the
// default user, as for tasks.
// It returns the digests in the order of the URIs.
func (d *Daemon) Fetch(ctx context.Context, name string, uris []protocol.URI, progress func(string)) ([]string, error) {
	if d.fetcher == nil {
		return nil, errNoCache
	}
	if name == "" {
		name = d.opts.DefaultUser
	}
	as, err := lookupAccount(name)
	if err != nil {
		return nil, fail(protocol.CodeInvalid, "%v", err)
	}
	out := make([]string, len(uris))
	for i, u := range uris {
		if u.OutputDir == "" {
			u.OutputDir = "/"
		}
		if err := fetch.Check(u); err != nil {
			return nil, fail(protocol.CodeInvalid, "uris[%d]: %v", i, err)
		}
		digest, err := d.fetcher.Get(ctx, as.cred, u, progress)
		if err != nil {
			return nil, fmt.Errorf("uris[%d]: %w", i, err)
		}
		out[i] = digest
	}
	return out, nil
}
