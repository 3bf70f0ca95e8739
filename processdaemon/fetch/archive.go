package fetch

import (
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"tandem/internal/archive"
)

// kind is what a file name says about its content. Names decide, not content:
// a .jar is a zip archive that must stay whole.
type kind int

const (
	plain kind = iota
	tarPlain
	tarGzip
	tarBzip2
	tarZstd
	zipFile
)

func kindOf(name string) kind {
	n := strings.ToLower(name)
	for suffix, k := range map[string]kind{
		".tar": tarPlain, ".tar.gz": tarGzip, ".tgz": tarGzip, ".tar.bz2": tarBzip2, ".tbz2": tarBzip2, ".tbz": tarBzip2,
		".tar.zst": tarZstd, ".tzst": tarZstd, ".zip": zipFile,
	} {
		if strings.HasSuffix(n, suffix) && len(n) > len(suffix) {
			return k
		}
	}
	return plain
}

// Owner is who shall own what is unpacked; -1 leaves it to who unpacks.
type Owner = archive.Owner

// ErrHostile is wrapped by the refusals of what no honest archive holds.
var ErrHostile = archive.ErrHostile

// unpack writes the content of an archive, or the file itself under name, below root.
func unpack(ctx context.Context, blob, name string, root *os.Root, owner Owner, limits Limits) error {
	f, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	o := archive.Options{Owner: owner, MaxFiles: limits.MaxFiles, MaxBytes: limits.MaxUnpacked, Packed: st.Size()}
	var entries int
	switch k := kindOf(name); k {
	case plain:
		// Whoever fetches a single file means to run it, or does not mind.
		return archive.File(ctx, root, name, 0o755, f, o)
	case zipFile:
		entries, err = archive.Zip(ctx, root, f, st.Size(), o)
	default:
		entries, err = compressedTar(ctx, root, f, k, o)
	}
	if err == nil && entries == 0 {
		err = errors.New("the archive is empty")
	}
	return err
}

func compressedTar(ctx context.Context, root *os.Root, f io.Reader, k kind, o archive.Options) (int, error) {
	br := bufio.NewReaderSize(f, 64<<10)
	var r io.Reader = br
	switch k {
	case tarGzip:
		z, err := gzip.NewReader(br)
		if err != nil {
			return 0, archive.NotA("gzip file", err)
		}
		defer z.Close()
		r = z
	case tarBzip2:
		r = bzip2.NewReader(br)
	case tarZstd:
		const window = 128 << 20
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return 0, archive.NotA("zstd file", err)
		}
		defer z.Close()
		r = z
	default:
	}
	return archive.Tar(ctx, root, r, o)
}
