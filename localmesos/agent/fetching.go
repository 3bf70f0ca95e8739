package agent

import (
	"context"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync/atomic"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/agent/internal/fetch"
)

// fetchCounts are for the metrics.
type fetchCounts struct{ succeeded, failed atomic.Int64 }

// newCache makes the fetcher's cache, or none. The directory that a flag names
// may hold anything, and be named to another agent: this agent's cache, which is
// emptied, is one below it.
func newCache(f Flags, work string) (*fetch.Cache, error) {
	if f.FetcherCacheSize == 0 {
		return nil, nil //nolint:nilnil // no cache is an answer
	}
	dir := filepath.Join(work, "fetch")
	if f.FetcherCacheDir != "" {
		dir = filepath.Join(f.FetcherCacheDir, fmt.Sprintf("agent-%08x", crc32.ChecksumIEEE([]byte(work))))
	}
	c, err := fetch.NewCache(dir, f.FetcherCacheSize)
	if err != nil {
		return nil, fmt.Errorf("fetcher_cache_dir: %w; give a directory that can be written, or --fetcher_cache_size=0B", err)
	}
	return c, nil
}

// doFetch brings the URIs of an executor's command into its sandbox.
func (j *job) doFetch(ctx context.Context) error {
	if len(j.fetch.URIs) == 0 {
		return nil
	}
	stderr, err := container.OpenLog(j.spec.Dir, "stderr", j.spec.User)
	if err != nil {
		return err
	}
	defer stderr.Close()
	j.fetch.Log = stderr
	if err := fetch.Run(ctx, j.fetch); err != nil {
		j.a.fetches.failed.Add(1)
		j.a.log.Warn("fetching failed", "container", j.run.Container, "error", err)
		// The reason is in the sandbox's stderr, as with Apache Mesos.
		return fmt.Errorf("Failed to fetch all URIs for container '%s': exited with status 1", j.run.Container) //nolint:staticcheck // Mesos's wording
	}
	j.a.fetches.succeeded.Add(1)
	return nil
}
