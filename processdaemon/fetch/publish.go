package fetch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
	"tandem/internal/safepath"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// Provide fetches a URI, puts its content into its outputDir and returns the
// content's digest. as is whom the content is for; nil is the daemon itself. place
// comes from Seal, for a URI that was sealed, and is empty for any other.
//
// A new outputDir appears whole or not at all. Into one that exists, the content
// is merged file by file, each replaced atomically, so that what else lies there
// stays: the data of a database, say, whose program is updated. A marker in the
// directory remembers what was put there; with IfNotPresent it is left alone from
// then on, unless the URI's checksum is another one; with Always it is renewed when the
// content has changed.
func (f *Fetcher) Provide(ctx context.Context, u protocol.URI, place string, as *syscall.Credential, progress func(string)) (string, error) {
	s, err := parse(u)
	if err != nil {
		return "", err
	}
	out := filepath.Clean(u.OutputDir)
	unlock, err := f.lockOutput(ctx, out, progress)
	if err != nil {
		return "", err
	}
	defer unlock()

	sealed := place != ""
	if !sealed {
		place = s.place()
	}
	name := ".tandem-" + place[:16] + ".json"
	have := f.marker(out, name)
	if have.Digest != "" && u.PullPolicy != Always && have.has(s.want) {
		return have.Digest, nil
	}
	if sealed && !f.touch(u.Digest) {
		return "", fmt.Errorf("fetch %s: %w", s.shown, errSealed)
	}
	digest, release, err := f.getAndHold(ctx, as, u, progress)
	if err != nil {
		return "", err
	}
	defer release()
	if have.Digest == digest {
		return digest, nil
	}
	p := &publication{f: f, s: s, out: out, marker: name, digest: digest, as: as, mode: u.Mode, progress: progress}
	if err := p.run(ctx); err != nil {
		return "", fmt.Errorf("unpack %s into %s: %w", s.shown, out, err)
	}
	return digest, nil
}

// getAndHold is Get, and keeps the content in the cache until it is released: the pause
// for what was just used is of no help when the clock is set.
func (f *Fetcher) getAndHold(ctx context.Context, as *syscall.Credential, u protocol.URI, progress func(string)) (digest string, release func(), err error) {
	const tries = 3
	for range tries {
		if digest, err = f.Get(ctx, as, u, progress); err != nil {
			return "", nil, err
		}
		holder := "fetch/" + rand.Text()
		f.Hold(holder, []string{digest}, nil)
		release = func() { f.Release(holder) }
		if f.touch(digest) {
			return digest, release, nil
		}
		release()
	}
	return "", nil, errors.New("what is fetched is removed from the cache at once; look at the space that it has")
}

// errSealed is for a task whose preparation a restart of the daemon interrupted.
var errSealed = errors.New("the daemon was restarted before it was here, and does not keep the password and query of a uri; " + protocol.CreateAnew)

// Seal returns a URI without what may be secret in it (user information, password,
// query), as it may be kept on disk, and the place to give to Provide with it. The
// place is empty when nothing was taken out.
func Seal(u protocol.URI) (protocol.URI, string) {
	s, err := parse(u)
	if err != nil || s.url == nil {
		secret := u.Password != ""
		if u.Password = ""; err != nil || !secret {
			return u, ""
		}
		return u, s.place()
	}
	shown := s.shown
	if len(s.want) > 0 {
		shown += "#" + s.want[0].algorithm + "=" + s.want[0].sum
	}
	if !s.userInfo && u.Password == "" && s.url.RawQuery == "" {
		return u, ""
	}
	// A user in the address may be a token.
	u.Value, u.Password = shown, ""
	return u, s.place()
}

// publication puts the content of one URI into its directory.
type publication struct {
	f                   *Fetcher
	s                   *source
	out, marker, digest string
	as                  *syscall.Credential
	mode                uint32
	progress            func(string)
}

func (p *publication) run(ctx context.Context) error {
	dir, base := filepath.Dir(p.out), filepath.Base(p.out)
	// From here on through handles: the directories may belong to a task.
	parent, err := safepath.OpenRoot(dir, true)
	if err != nil {
		return err
	}
	defer func() { parent.Close() }()
	if out, err := safepath.OpenRoot(p.out, false); err == nil && onAnotherMount(parent, out) {
		// Nothing can be moved into it from beside it.
		parent.Close()
		dir, parent = p.out, out
	} else if err == nil {
		out.Close()
	}
	// Beside the output, so that a rename suffices.
	tmp := p.f.besides(p.out)
	done, err := p.f.intend(filepath.Join(dir, tmp))
	if err != nil {
		return err
	}
	defer done()
	if err := parent.RemoveAll(tmp); err != nil {
		return err
	}
	if err := parent.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer p.f.discard(parent, tmp)
	root, err := parent.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := p.unpack(ctx, root); err != nil {
		return err
	}
	if err := failpoint.Inject("fetch/unpacked"); err != nil {
		return err
	}
	m := mark{Digest: p.digest, Boot: p.f.boot}
	if len(p.s.want) > 0 {
		m.Sum = p.s.want[0].String()
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	p.f.unconfirmed(p.out, p.marker)
	if _, err := parent.Lstat(base); dir != p.out && errors.Is(err, fs.ErrNotExist) {
		whole, err := p.rename(parent, root, tmp, base, b)
		if whole {
			p.f.recordOutput(p.out)
		}
		if whole || err != nil {
			return err
		}
	}
	return p.f.merge(ctx, mergeRecord{
		From: filepath.Join(dir, tmp), Out: p.out, Marker: p.marker, Mark: m, Ours: p.f.unchanged(p.out), Boot: p.f.boot,
	}, root)
}

// onAnotherMount tells whether a directory is on another mount than its parent.
func onAnotherMount(parent, dir *os.Root) bool {
	a, err1 := mountOf(parent, ".")
	b, err2 := mountOf(dir, ".")
	return err1 == nil && err2 == nil && a != b
}

// percent is a share for people. A zip archive is read more than once in places.
func percent(n, of int64) string { return fmt.Sprintf("%d%%", min(100, 100*n/max(1, of))) }

// unpack lets a process of its own fill the directory.
func (p *publication) unpack(ctx context.Context, root *os.Root) error {
	to, err := root.Open(".")
	if err != nil {
		return err
	}
	defer to.Close()
	if p.as != nil {
		if err := to.Chown(int(p.as.Uid), int(p.as.Gid)); err != nil {
			return err
		}
	}
	blob, err := os.Open(p.f.blob(p.digest))
	if err != nil {
		return err
	}
	defer blob.Close()
	st, err := blob.Stat()
	if err != nil {
		return err
	}
	if err := enter(ctx, p.f.slots, "unpack "+p.s.shown, p.progress); err != nil {
		return err
	}
	defer func() { <-p.f.slots }()
	job := unpack.Job{
		Name: p.s.base, Mode: p.mode, As: p.as,
		MaxBytes: p.f.limits.MaxUnpacked, MaxFiles: p.f.limits.MaxFiles, MaxRatio: p.f.limits.MaxRatio,
	}
	said := time.Now()
	return p.f.unpack.Run(ctx, job, blob, to, func(n unpack.Progress) {
		if now := time.Now(); p.progress != nil && now.Sub(said) >= p.f.limits.Tell {
			said = now
			p.progress(fmt.Sprintf("unpacking %s: %d entries, %s (%s)", p.s.shown, n.Entries, amount(n.Unpacked, -1), percent(n.Packed, st.Size())))
		}
	})
}

// rename makes the new directory appear whole. It returns false when there is one after all.
func (p *publication) rename(parent, root *os.Root, tmp, base string, mark []byte) (bool, error) {
	// Whatever is in its place is replaced, and not written to.
	if err := replaceIn(root, p.marker, mark); err != nil {
		return false, err
	}
	if err := root.Chmod(".", 0o755); err != nil {
		return false, err
	}
	dir, err := parent.Open(".")
	if err != nil {
		return false, err
	}
	defer dir.Close()
	err = unix.Renameat2(int(dir.Fd()), tmp, int(dir.Fd()), base, unix.RENAME_NOREPLACE)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EINVAL) {
		return false, fmt.Errorf("rename: %w", err)
	}
	// Somebody made it meanwhile, or the file system knows no NOREPLACE.
	if err := parent.Mkdir(base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	return false, root.Remove(p.marker)
}
