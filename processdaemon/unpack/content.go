package unpack

import (
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

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
	tarXz
	tarZstd
	zipFile
)

func kindOf(name string) kind {
	n := strings.ToLower(name)
	for suffix, k := range map[string]kind{
		".tar": tarPlain, ".tar.gz": tarGzip, ".tgz": tarGzip, ".tar.bz2": tarBzip2, ".tbz2": tarBzip2, ".tbz": tarBzip2,
		".tar.xz": tarXz, ".txz": tarXz, ".tar.zst": tarZstd, ".tzst": tarZstd, ".zip": zipFile,
	} {
		if strings.HasSuffix(n, suffix) && len(n) > len(suffix) {
			return k
		}
	}
	return plain
}

// content writes the content of an archive, or the file itself under the job's
// name, below root. told is called often.
func content(ctx context.Context, f *os.File, root *os.Root, j *Job, told func(Progress)) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	m := &meter{f: f, told: told}
	o := archive.Options{
		Owner: archive.Self, MaxFiles: j.MaxFiles, MaxBytes: j.MaxBytes, MaxRatio: j.MaxRatio, Packed: st.Size(),
		Progress: func(entries int, unpacked int64) {
			m.now.Entries, m.now.Unpacked = entries, unpacked
			told(m.now)
		},
	}
	var entries int
	switch k := kindOf(j.Name); k {
	case plain:
		return archive.File(ctx, root, j.Name, j.mode(), m, o)
	case zipFile:
		entries, err = archive.Zip(ctx, root, m, st.Size(), o)
	default:
		entries, err = compressedTar(ctx, root, m, k, o)
	}
	if err == nil && entries == 0 {
		err = errors.New("the archive is empty")
	}
	return err
}

// meter counts what is read of a file.
type meter struct {
	f    *os.File
	now  Progress
	told func(Progress)
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.f.Read(p)
	m.count(n)
	return n, err
}

// ReadAt is for zip archives, which are read all over the place.
func (m *meter) ReadAt(p []byte, at int64) (int, error) {
	n, err := m.f.ReadAt(p, at)
	m.count(n)
	return n, err
}

func (m *meter) count(n int) {
	m.now.Packed += int64(n)
	m.told(m.now)
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
		z.Multistream(false)
		r = &members{z, br}
	case tarBzip2:
		r = bzip2.NewReader(br)
	case tarXz:
		z, err := xz.NewReader(br)
		if err != nil {
			return 0, archive.NotA("xz file", err)
		}
		r = z
	case tarZstd:
		// One decoder works in this goroutine, as the confinement wants it.
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return 0, archive.NotA("zstd file", err)
		}
		defer z.Close()
		r = z
	default:
	}
	entries, err := archive.Tar(ctx, root, r, o)
	if err == nil && k != tarPlain {
		err = checkEnd(r, o.MaxBytes)
	}
	return entries, tooWide(err)
}

// zstdWindow is what zstd itself decompresses without being asked, in bytes.
const zstdWindow = 128 << 20

// checkEnd reads what is behind the end of the tar archive: only with the end of the
// compressed file its checksums are compared.
func checkEnd(r io.Reader, most int64) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, most+1))
	var strange bzip2.StructuralError
	switch {
	case n > most:
		return fmt.Errorf("%w: more than %d bytes behind the end of the archive", ErrHostile, most)
	case errors.As(err, &strange) && strings.Contains(strange.Error(), "bad magic"):
		// A whole file, and then something else: bzip2 takes no notice, either.
		return nil
	case err != nil:
		return archive.NotA("compressed file", err)
	}
	return nil
}

// tooWide says what package zstd means by a window that is too large: nothing is damaged.
func tooWide(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return fmt.Errorf("it needs more than %d MiB of memory to decompress; make it with a smaller window, such as zstd --long=27", zstdWindow>>20)
	}
	return err
}

// members reads a gzip file of several members (RFC 1952, 2.2). What is behind them and is
// none is of no account, as for gzip itself.
type members struct {
	z    *gzip.Reader
	from *bufio.Reader
}

func (m *members) Read(p []byte) (int, error) {
	n, err := m.z.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	const magic = "\x1f\x8b"
	if next, _ := m.from.Peek(len(magic)); string(next) != magic {
		return n, io.EOF
	}
	if err := m.z.Reset(m.from); err != nil {
		return n, err
	}
	m.z.Multistream(false)
	return n, nil
}
