package fetch

import (
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"tandem/internal/archive"
)

// limits are those of one archive. The sandbox holds what was fetched before,
// and the executor, maybe root, trusts paths below it: a link that may lead out
// must not even be left behind.
func limits() archive.Options {
	return archive.Options{Owner: archive.Self, MaxFiles: 1_000_000, MaxBytes: 64 << 30, InUse: true}
}

// kinds are the archives that Apache Mesos extracts, by the end of their names.
// The longest match counts.
var kinds = []struct {
	suffix string
	open   func(ctx context.Context, r io.Reader) (io.ReadCloser, error)
	tar    bool
}{
	{".tar.gz", openGzip, true}, {".tgz", openGzip, true},
	{".tar.bz2", openBzip2, true}, {".tbz2", openBzip2, true},
	{".tar.xz", openXz, true}, {".txz", openXz, true},
	{".tar", openPlain, true},
	{".gz", openGzip, false},
}

// extract unpacks an archive that lies in the sandbox into the sandbox.
func extract(ctx context.Context, root *os.Root, name string, unpack unpacker) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unpack(ctx, root, f); err != nil {
		return fmt.Errorf("extracting: %w", err)
	}
	return nil
}

// unpacker unpacks an archive into a directory.
type unpacker func(ctx context.Context, root *os.Root, f *os.File) error

// extractor is how a file of that name is unpacked; nil means that it is not.
func extractor(name string) unpacker {
	if strings.HasSuffix(name, ".zip") {
		return unzip
	}
	for _, k := range kinds {
		if !strings.HasSuffix(name, k.suffix) {
			continue
		}
		return func(ctx context.Context, root *os.Root, f *os.File) error {
			r, err := k.open(ctx, bufio.NewReader(f))
			if err != nil {
				return err
			}
			if k.tar {
				_, err = archive.Tar(ctx, root, r, limits())
			} else {
				err = archive.File(ctx, root, strings.TrimSuffix(name, k.suffix), 0o644, r, limits())
			}
			return errors.Join(err, r.Close())
		}
	}
	return nil
}

func unzip(ctx context.Context, root *os.Root, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = archive.Zip(ctx, root, f, st.Size(), limits())
	return err
}

func openPlain(_ context.Context, r io.Reader) (io.ReadCloser, error) { return io.NopCloser(r), nil }

func openGzip(_ context.Context, r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

func openBzip2(_ context.Context, r io.Reader) (io.ReadCloser, error) {
	return io.NopCloser(bzip2.NewReader(r)), nil
}

// openXz uses the xz program, which tar would use too.
func openXz(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	p, err := exec.LookPath("xz")
	if err != nil {
		return nil, errors.New("the program xz is missing; install xz-utils, or use gzip")
	}
	cmd := exec.CommandContext(ctx, p, "--decompress", "--stdout")
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &command{Reader: out, cmd: cmd}, nil
}

type command struct {
	io.Reader
	cmd *exec.Cmd
}

// Close waits for the program, after what it may still have to say.
func (c *command) Close() error {
	_, err := io.Copy(io.Discard, c.Reader)
	if werr := c.cmd.Wait(); werr != nil {
		return fmt.Errorf("xz: %w", werr)
	}
	return err
}
