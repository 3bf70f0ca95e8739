package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A task's output is rotated: what is cut off has the place of its first byte as
// its ending (stdout.000016777216), and what follows it is in the file itself. So
// every byte that was ever written has a place that never changes, and a reader counts
// in those, whichever file the byte is in by now. An executor begins a new file; the
// process daemon cuts the head off the old one, and while it does, a file
// stdout.cutting is there and the places are not to be known.

// How long a file that is being cut is waited for.
const (
	cuttingPause = 20 * time.Millisecond
	cuttingTries = 50
)

// logFile is one file of an output.
type logFile struct {
	path string
	// begin is the place of its first byte; size is not known of the present file.
	begin, size int64
}

// locate asks the agent for the files of the output. The last one is that which
// is written to. An agent that lists no directory has one file.
func (s *logSource) locate(ctx context.Context) error {
	for range cuttingTries {
		cutting, err := s.list(ctx)
		if err != nil || !cutting {
			return err
		}
		select {
		case <-time.After(cuttingPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil // a daemon was killed in the middle; some output may be shown twice
}

// list is one look; cutting tells that it is no good.
func (s *logSource) list(ctx context.Context) (cutting bool, err error) {
	present := logFile{path: s.path}
	entries, err := s.browse(ctx, path.Dir(s.path))
	if refused := (*refusedError)(nil); err != nil && !errors.As(err, &refused) {
		return false, err
	}
	var files []logFile
	for _, e := range entries {
		cutting = cutting || e.Path == s.path+".cutting"
		digits, ok := strings.CutPrefix(e.Path, s.path+".")
		begin, err := strconv.ParseInt(digits, 10, 64)
		if ok && err == nil && len(digits) >= 12 {
			files = append(files, logFile{path: e.Path, begin: begin, size: e.Size})
			present.begin = max(present.begin, begin+e.Size)
		}
	}
	slices.SortFunc(files, func(a, b logFile) int { return cmp.Compare(a.begin, b.begin) })
	files = append(files, present)
	s.files = files
	return cutting, nil
}

// present is the file that is written to.
func (s *logSource) present() logFile { return s.files[len(s.files)-1] }

// readAt returns what there is at a place, and the place where it begins, which
// is later when the files of before are gone. Nothing means that nothing is there yet.
func (s *logSource) readAt(ctx context.Context, at int64, length int) ([]byte, int64, error) {
	const tries = 10
	for range tries {
		if s.files == nil {
			if err := s.locate(ctx); err != nil {
				return nil, at, err
			}
		}
		at = max(at, s.files[0].begin)
		i := len(s.files) - 1
		for i > 0 && s.files[i].begin > at {
			i--
		}
		f := s.files[i]
		if i == len(s.files)-1 {
			piece, err := s.readPresent(ctx, f, at-f.begin, length)
			if err != nil || s.files != nil {
				return piece, at, err
			}
			continue
		}
		a, err := s.ask(ctx, f.path, url.Values{"offset": {strconv.FormatInt(at-f.begin, 10)}, "length": {strconv.Itoa(min(length, int(min(f.size, logChunk))))}})
		switch {
		case isNotFound(err):
			s.files = nil // it has just been removed
			continue
		case err != nil:
			return nil, at, err
		case len(a.Data) == 0:
			// Shorter than it was said to be: nothing more will come.
			at = s.files[i+1].begin
			continue
		}
		return a.Data, at, nil
	}
	return nil, at, fmt.Errorf("%s is rotated faster than it can be read", s.path)
}

// readPresent reads the file that is written to. It may be rotated at any moment:
// what was read counts only when it is the same file afterwards. s.files is nil
// when it was not.
func (s *logSource) readPresent(ctx context.Context, f logFile, offset int64, length int) ([]byte, error) {
	a, err := s.ask(ctx, f.path, url.Values{"offset": {strconv.FormatInt(offset, 10)}, "length": {strconv.Itoa(length)}})
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	if lerr := s.locate(ctx); lerr != nil {
		return nil, lerr
	}
	if s.present().begin != f.begin {
		s.files = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return a.Data, nil
}

// end is the place after the last byte.
func (s *logSource) end(ctx context.Context) (int64, error) {
	for {
		if err := s.locate(ctx); err != nil {
			return 0, err
		}
		f := s.present()
		// Without a length and with offset -1 the agent tells the file's size.
		a, err := s.ask(ctx, f.path, url.Values{"offset": {"-1"}})
		if err != nil {
			return 0, err
		}
		if err := s.locate(ctx); err != nil {
			return 0, err
		}
		if s.present().begin == f.begin {
			return f.begin + a.Offset, nil
		}
	}
}
