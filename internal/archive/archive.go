// Package archive unpacks tar and zip archives that nobody vouches for, for the
// process daemon and the embedded agent. Who calls it decides by the file's name
// what an archive is and undoes its compression; what the entries may do is
// decided here. Nothing is written, linked or given rights outside of the
// directory, no special file and no setuid bit gets through, and sizes and
// counts are bounded.
//
// It runs in the caller's goroutine alone, for the rights of a user may be tied
// to the caller's thread.
package archive

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// ErrHostile is wrapped by the refusals of what no honest archive holds.
var ErrHostile = errors.New("refused for safety")

func hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrHostile, fmt.Sprintf(format, args...))
}

// Owner is who shall own what is unpacked; -1 leaves it to who unpacks.
type Owner struct{ UID, GID int }

// Self is the owner who leaves everything to who unpacks.
var Self = Owner{UID: -1, GID: -1}

// Options say where to and how much.
type Options struct {
	Owner Owner
	// MaxFiles bounds the entries, MaxBytes the bytes of the unpacked stream
	// and those of the files. Both must be given.
	MaxFiles int
	MaxBytes int64
	// Packed is the archive's size in bytes. When it is given, content of more than
	// 128 MiB that is MaxRatio times as large is refused; 0 is a thousand.
	Packed   int64
	MaxRatio int64
	// Progress is called with the entries and the bytes of files unpacked so far,
	// often. It may be nil.
	Progress func(entries int, bytes int64)
	// InUse says that the directory holds what others have put there, and that
	// what is unpacked stays when an entry is refused. Links that are there are
	// followed inside of the directory, and a new one must show by its text
	// that it cannot lead out. Otherwise the directory is fresh and thrown
	// away after an error: nothing may lie below a link, and links are followed
	// to their end when all is there; what no archive made for others holds is
	// refused as well: a file that comes twice, a file with a setuid or setgid bit.
	InUse bool
}

// Tar unpacks a tar stream below root. The error wraps ErrHostile for a
// refusal, or says that the stream is no whole archive.
// It returns how many entries there were.
func Tar(ctx context.Context, root *os.Root, r io.Reader, o Options) (int, error) {
	u := newUnpacker(ctx, root, o)
	// Headers are bounded too: an archive can consist of nothing else.
	if err := u.tar(tar.NewReader(&bounded{u, r, &u.raw})); err != nil {
		return u.files, err
	}
	return u.files, u.finish()
}

// Zip is Tar for a zip archive of the given size.
func Zip(ctx context.Context, root *os.Root, r io.ReaderAt, size int64, o Options) (int, error) {
	u := newUnpacker(ctx, root, o)
	if err := u.zip(r, size); err != nil {
		return u.files, err
	}
	return u.files, u.finish()
}

// File writes a single file as if it were an archive's only entry.
func File(ctx context.Context, root *os.Root, name string, mode fs.FileMode, r io.Reader, o Options) error {
	u := newUnpacker(ctx, root, o)
	c, err := clean(name)
	if err != nil {
		return err
	}
	return u.file(c, mode, r)
}

func newUnpacker(ctx context.Context, root *os.Root, o Options) *unpacker {
	return &unpacker{ctx: ctx, root: root, Options: o, dirs: map[string]fs.FileMode{}}
}

// NotA says that content is not what the file's name says it is: a gzip file, say.
func NotA(what string, err error) error {
	return fmt.Errorf("not a whole %s, although its name says so: %w", what, err)
}

func (u *unpacker) tar(r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, ErrHostile) || u.ctx.Err() != nil {
			return err
		}
		if err != nil {
			return NotA("tar archive", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader || h.Typeflag == gnuLabel {
			continue
		}
		if err := u.count(); err != nil {
			return err
		}
		name, err := clean(h.Name)
		if err != nil {
			return err
		}
		if err := u.tarEntry(name, h, r); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return NotA("tar archive", err)
			}
			return err
		}
	}
}

// Entries of GNU tar that package tar leaves alone: the label of the archive (--label), and a
// directory with a list of its names (--incremental). See "Basic Tar Format" in its manual.
const (
	gnuLabel   = 'V'
	gnuDumpDir = 'D'
)

func (u *unpacker) tarEntry(name string, h *tar.Header, r io.Reader) error {
	mode := fs.FileMode(h.Mode)
	switch h.Typeflag {
	case tar.TypeDir, gnuDumpDir:
		return u.dir(name, mode)
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse: //nolint:staticcheck // old archives have TypeRegA
		const setuid, setgid = 0o4000, 0o2000
		if h.Mode&(setuid|setgid) != 0 {
			if err := u.special(name); err != nil {
				return err
			}
		}
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

func (u *unpacker) zip(r io.ReaderAt, size int64) error {
	zr, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return NotA("zip archive", err)
	}
	for _, e := range zr.File {
		if err := u.count(); err != nil {
			return err
		}
		name, err := clean(zipName(e))
		if err != nil {
			return err
		}
		if err := u.zipEntry(name, e); err != nil {
			if errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) {
				return NotA("zip archive", err)
			}
			return err
		}
	}
	return nil
}

// fromUnix tells whether an entry was made where files have modes: APPNOTE.TXT, 4.4.2.2.
func fromUnix(e *zip.File) bool {
	const unix, macOS = 3, 19
	system := e.CreatorVersion >> 8
	return system == unix || system == macOS
}

// zipName is an entry's name with slashes; some programs of Windows write backslashes.
func zipName(e *zip.File) string {
	if fromUnix(e) {
		return e.Name
	}
	return strings.ReplaceAll(e.Name, `\`, "/")
}

func (u *unpacker) zipEntry(name string, e *zip.File) error {
	mode := e.Mode()
	isDir := mode.IsDir() || strings.HasSuffix(zipName(e), "/")
	if !fromUnix(e) {
		// It says read-only or not, and nothing of users: as unzip has it, with the usual umask.
		if mode &^= 0o022; isDir {
			mode |= 0o111
		}
	}
	switch {
	case isDir:
		return u.dir(name, mode)
	case mode.IsRegular(), mode&fs.ModeSymlink != 0:
	default:
		return hostile("%q is a device or a pipe", e.Name)
	}
	if mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		if err := u.special(name); err != nil {
			return err
		}
	}
	// APPNOTE.TXT, 4.4.4; package zip would take what is encrypted for damaged content.
	const encrypted = 1
	if e.Flags&encrypted != 0 {
		return fmt.Errorf("%q is encrypted; make the archive without a password", e.Name)
	}
	r, err := e.Open()
	if errors.Is(err, zip.ErrAlgorithm) {
		return fmt.Errorf("%q is compressed in a way that is not supported (method %d of zip archives); use deflate or none", e.Name, e.Method)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if mode&fs.ModeSymlink != 0 {
		const longest = 4096
		target, err := io.ReadAll(io.LimitReader(r, longest))
		if err != nil {
			return err
		}
		return u.symlink(name, string(target))
	}
	// Archives made elsewhere may carry no rights at all.
	if perm(mode) == 0 {
		mode = 0o644
	}
	return u.file(name, mode, r)
}
