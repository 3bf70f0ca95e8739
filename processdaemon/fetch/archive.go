package fetch

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
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
	u := &unpacker{ctx: ctx, root: root, owner: owner, limits: limits, packed: st.Size(), dirs: map[string]fs.FileMode{}}
	k := kindOf(name)
	switch k {
	case plain:
		// Whoever fetches a single file means to run it, or does not mind.
		c, err := clean(name)
		if err != nil {
			return err
		}
		return u.file(c, 0o755, f)
	case zipFile:
		err = u.zip(f, st.Size())
	default:
		err = u.compressedTar(f, k)
	}
	if err != nil {
		return err
	}
	if u.files == 0 {
		return errors.New("the archive is empty")
	}
	return u.finish()
}

func (u *unpacker) compressedTar(f io.Reader, k kind) error {
	br := bufio.NewReaderSize(f, 64<<10)
	var r io.Reader = br
	switch k {
	case tarGzip:
		z, err := gzip.NewReader(br)
		if err != nil {
			return notA("gzip file", err)
		}
		defer z.Close()
		r = z
	case tarBzip2:
		r = bzip2.NewReader(br)
	case tarZstd:
		const window = 128 << 20
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return notA("zstd file", err)
		}
		defer z.Close()
		r = z
	default:
	}
	// Headers are bounded too: an archive can consist of nothing else.
	return u.tar(&bounded{u, r, &u.raw})
}

func notA(what string, err error) error {
	return fmt.Errorf("not a whole %s, although its name says so: %w", what, err)
}

func (u *unpacker) tar(r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, ErrHostile) || u.ctx.Err() != nil {
			return err
		}
		if err != nil {
			return notA("tar archive", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := u.count(); err != nil {
			return err
		}
		name, err := clean(h.Name)
		if err != nil {
			return err
		}
		if err := u.tarEntry(name, h, tr); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return notA("tar archive", err)
			}
			return err
		}
	}
}

func (u *unpacker) tarEntry(name string, h *tar.Header, r io.Reader) error {
	mode := fs.FileMode(h.Mode)
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(name, mode)
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse: //nolint:staticcheck // old archives have TypeRegA
		return u.file(name, mode, r)
	case tar.TypeSymlink:
		return u.symlink(name, h.Linkname)
	case tar.TypeLink:
		return u.hardlink(name, h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return hostile("%q is a device or a pipe", h.Name)
	}
	return hostile("%q has the unknown type %q", h.Name, h.Typeflag)
}

func (u *unpacker) zip(f *os.File, size int64) error {
	zr, err := zip.NewReader(f, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return notA("zip archive", err)
	}
	for _, e := range zr.File {
		if err := u.count(); err != nil {
			return err
		}
		name, err := clean(e.Name)
		if err != nil {
			return err
		}
		if err := u.zipEntry(name, e); err != nil {
			if errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || errors.Is(err, zip.ErrAlgorithm) || errors.Is(err, io.ErrUnexpectedEOF) {
				return notA("zip archive", err)
			}
			return err
		}
	}
	return nil
}

func (u *unpacker) zipEntry(name string, e *zip.File) error {
	mode := e.Mode()
	switch {
	case mode.IsDir() || strings.HasSuffix(e.Name, "/"):
		return u.dir(name, mode)
	case mode.IsRegular(), mode&fs.ModeSymlink != 0:
	default:
		return hostile("%q is a device or a pipe", e.Name)
	}
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if mode&fs.ModeSymlink == 0 {
		return u.file(name, mode, r)
	}
	const longest = 4096
	target, err := io.ReadAll(io.LimitReader(r, longest))
	if err != nil {
		return err
	}
	return u.symlink(name, string(target))
}
