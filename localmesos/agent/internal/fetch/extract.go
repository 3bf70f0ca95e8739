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
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Limits of one archive.
const (
	maxEntries = 1_000_000
	maxBytes   = 64 << 30
)

// errTooLarge ends the extraction of an archive beyond the limits.
var errTooLarge = fmt.Errorf("the archive holds more than %d entries or %d bytes", maxEntries, int64(maxBytes))

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

// extract unpacks an archive that lies in the sandbox into the directory that
// it lies in; a file of another kind is left alone.
func extract(ctx context.Context, root *os.Root, name string) error {
	if strings.HasSuffix(name, ".zip") {
		return unzip(ctx, root, name)
	}
	for _, k := range kinds {
		if !strings.HasSuffix(name, k.suffix) {
			continue
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		r, err := k.open(ctx, bufio.NewReader(f))
		if err != nil {
			return fmt.Errorf("extracting: %w", err)
		}
		if k.tar {
			err = untar(ctx, root, r)
		} else {
			err = writeFile(root, strings.TrimSuffix(name, k.suffix), &limited{r: r, left: maxBytes}, 0o644)
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("extracting: %w", err)
		}
		return nil
	}
	return nil
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

// limited fails when more is read than an archive may hold.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n, errTooLarge
	}
	return n, err
}

func untar(ctx context.Context, root *os.Root, r io.Reader) error {
	t := tar.NewReader(&limited{r: r, left: maxBytes})
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n == maxEntries:
			return errTooLarge
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if err := untarOne(root, t, h); err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
}

func untarOne(root *os.Root, t *tar.Reader, h *tar.Header) error {
	name, err := inside(h.Name)
	if err != nil || name == "." {
		return err
	}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		return makeDir(root, name, mode)
	case tar.TypeReg:
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		return writeFile(root, name, t, mode)
	case tar.TypeSymlink:
		return makeLink(root, name, h.Linkname)
	case tar.TypeLink:
		return hardLink(root, name, h.Linkname)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return fmt.Errorf("type %q is not allowed: only files, directories and links are", string(h.Typeflag))
}

// inside checks an entry's name: it must stay in the sandbox whatever links
// there are, for which os.Root cares, and as it is written.
func inside(name string) (string, error) {
	clean := path.Clean(strings.TrimSuffix(name, "/"))
	if name == "" || !filepath.IsLocal(clean) || strings.ContainsRune(name, 0) {
		return "", errors.New("its path leads out of the sandbox")
	}
	return clean, nil
}

func makeDir(root *os.Root, name string, mode fs.FileMode) error {
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	// A directory that its owner cannot enter would fail the entries below it.
	return root.Chmod(name, mode|0o700)
}

// makeLink makes a symbolic link, if it stays in the sandbox: the executor,
// maybe root, trusts paths below its sandbox.
func makeLink(root *os.Root, name, to string) error {
	if err := makeRoom(root, name); err != nil {
		return err
	}
	if err := checkLink(root, name, to); err != nil {
		return err
	}
	return root.Symlink(to, name)
}

// checkLink allows only what cannot leave the sandbox together with other
// links either: ".." only at the beginning, no more often than the link is deep,
// and from a directory that is reached without links.
func checkLink(root *os.Root, name, to string) error {
	refused := fmt.Errorf("a link to %q, which leads or may lead out of the sandbox", to)
	if to == "" || path.IsAbs(to) || strings.ContainsRune(to, 0) {
		return refused
	}
	climbs, down := 0, false
	for part := range strings.SplitSeq(to, "/") {
		switch {
		case part == ".." && down:
			return refused
		case part == "..":
			climbs++
		case part != "" && part != ".":
			down = true
		}
	}
	if climbs > strings.Count(name, "/") {
		return refused
	}
	for dir := path.Dir(name); climbs > 0 && dir != "."; dir = path.Dir(dir) {
		st, err := root.Lstat(dir)
		if err != nil {
			return err
		}
		if !st.IsDir() {
			return refused
		}
	}
	return nil
}

// hardLink links to a file of the archive. One to a symbolic link would move
// that to another depth, where it may lead out.
func hardLink(root *os.Root, name, to string) error {
	to, err := inside(to)
	if err != nil {
		return err
	}
	st, err := root.Lstat(to)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("a hard link to %q, which is not a file", to)
	}
	if err := makeRoom(root, name); err != nil {
		return err
	}
	return root.Link(to, name)
}

// makeRoom makes room for a link.
func makeRoom(root *os.Root, name string) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func unzip(ctx context.Context, root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, st.Size())
	if err != nil {
		return fmt.Errorf("extracting: %w", err)
	}
	if len(z.File) > maxEntries {
		return errTooLarge
	}
	left := int64(maxBytes)
	for _, e := range z.File {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := unzipOne(root, e, left)
		if err != nil {
			return fmt.Errorf("extracting: entry %q: %w", e.Name, err)
		}
		left -= n
	}
	return nil
}

func unzipOne(root *os.Root, e *zip.File, left int64) (int64, error) {
	name, err := inside(e.Name)
	if err != nil || name == "." {
		return 0, err
	}
	mode := e.Mode()
	if mode.IsDir() {
		return 0, makeDir(root, name, mode.Perm())
	}
	r, err := e.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	l := &limited{r: r, left: left}
	switch {
	case mode&fs.ModeSymlink != 0:
		const maxLink = 4096
		to, err := io.ReadAll(io.LimitReader(l, maxLink))
		if err != nil {
			return 0, err
		}
		return 0, makeLink(root, name, string(to))
	case !mode.IsRegular():
		return 0, errors.New("only files, directories and links are allowed")
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return 0, err
	}
	// Archives made elsewhere may carry no rights at all.
	perm := mode.Perm()
	if perm == 0 {
		perm = 0o644
	}
	err = writeFile(root, name, l, perm)
	return left - l.left, err
}
