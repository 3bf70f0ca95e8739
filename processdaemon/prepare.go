package processdaemon

import (
	"context"
	"fmt"

	"tandem/internal/failpoint"
	"tandem/processdaemon/fetch"
	"tandem/processdaemon/protocol"
)

// prepare fetches what the URIs name and puts it in place, one after the other:
// a later one may add to the directory of an earlier one. It may be repeated.
func (d *Daemon) prepare(ctx context.Context, spec *protocol.Spec, progress func(string)) error {
	if err := failpoint.Inject("processdaemon/prepare"); err != nil {
		return err
	}
	as, err := lookupAccount(spec.User)
	if err != nil {
		return err
	}
	owner := fetch.Owner{UID: -1, GID: -1}
	if as.cred != nil {
		owner = fetch.Owner{UID: as.uid, GID: as.gid}
	}
	if d.fetcher == nil && len(spec.URIs) > 0 {
		return errNoCache
	}
	for i, u := range spec.URIs {
		if err := d.fetcher.Provide(ctx, u, owner, progress); err != nil {
			return fmt.Errorf("uris[%d]: %w", i, err)
		}
	}
	return nil
}

// errNoCache says that the daemon started without its cache; Info tells why.
var errNoCache = fail(protocol.CodeInternal, "the process daemon cannot use its cache; mend its data directory and restart it")

// Fetch brings what the URIs name into the cache, without putting it in place.
// It returns the digests in the order of the URIs.
func (d *Daemon) Fetch(ctx context.Context, uris []protocol.URI, progress func(string)) ([]string, error) {
	if d.fetcher == nil {
		return nil, errNoCache
	}
	out := make([]string, len(uris))
	for i, u := range uris {
		if u.OutputDir == "" {
			u.OutputDir = "/"
		}
		if err := fetch.Check(u); err != nil {
			return nil, fail(protocol.CodeInvalid, "uris[%d]: %v", i, err)
		}
		digest, err := d.fetcher.Get(ctx, u, progress)
		if err != nil {
			return nil, fmt.Errorf("uris[%d]: %w", i, err)
		}
		out[i] = digest
	}
	return out, nil
}
