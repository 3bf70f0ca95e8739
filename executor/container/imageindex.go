package container

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tandem/executor/container/internal/engine"
	"tandem/internal/atomicfile"
	"tandem/internal/procid"
)

// What the engine has told of an image holds until a name comes to mean another
// image. The engine keeps all names in one file, which it replaces as a whole on
// every change; as long as that file is the same, the engine need not be asked
// again. The file is never read, only looked at. Where there is none (an engine that
// keeps its images in containerd, or elsewhere), every launch asks.

// noted is one image in the cache.
type noted struct {
	Ref string `json:"ref"`
	// Index is the engine's file of names, Stamp what it looked like.
	Index string     `json:"index"`
	Stamp string     `json:"stamp"`
	Image imageFacts `json:"image"`
}

const (
	// noteLimit is how many images are remembered; then it begins anew.
	noteLimit = 512
	// noteMargin is how long before the question the names must have been what they
	// are: the kernel's clock of files goes by steps of some milliseconds.
	noteMargin = 50 * time.Millisecond
)

// notePath is where an image is remembered.
func (r *Runtime) notePath(ref string) string {
	sum := sha256.Sum256([]byte(r.engine.Host() + "\x00" + ref))
	return filepath.Join(r.opt.ImageCache, hex.EncodeToString(sum[:16])+".json")
}

// known returns what is remembered of an image, if that still holds.
func (r *Runtime) known(ref string) (imageFacts, bool) {
	if r.opt.ImageCache == "" {
		return imageFacts{}, false
	}
	text, err := atomicfile.Read(r.notePath(ref), 16<<10)
	if err != nil {
		return imageFacts{}, false
	}
	var n noted
	if json.Unmarshal(text, &n) != nil || n.Ref != ref || n.Index == "" || n.Image == (imageFacts{}) {
		return imageFacts{}, false
	}
	stamp, _, err := r.stamp(n.Index)
	return n.Image, err == nil && stamp == n.Stamp
}

// note remembers what the engine told of an image when it was asked at the time
// began. Failing is no harm.
func (r *Runtime) note(ref string, facts imageFacts, img *engine.Image, began time.Time) {
	index := indexOf(img)
	if r.opt.ImageCache == "" || index == "" || began.IsZero() {
		return
	}
	stamp, changed, err := r.stamp(index)
	if err != nil || !changed.Before(began.Add(-noteMargin)) {
		return
	}
	if err := atomicfile.MkdirAll(r.opt.ImageCache, 0o700); err != nil {
		return
	}
	if all, err := os.ReadDir(r.opt.ImageCache); err == nil && len(all) >= noteLimit {
		for _, old := range all {
			_ = os.Remove(filepath.Join(r.opt.ImageCache, old.Name()))
		}
	}
	text, err := json.Marshal(noted{Ref: ref, Index: index, Stamp: stamp, Image: facts})
	if err == nil {
		err = atomicfile.WriteVolatile(r.notePath(ref), text, 0o600)
	}
	if err != nil {
		r.log.Debug("what the engine told of an image is not remembered", "image", ref, "err", err)
	}
}

// forget is for an image that is not there after all.
func (r *Runtime) forget(ref string) {
	if r.opt.ImageCache != "" {
		_ = os.Remove(r.notePath(ref))
	}
}

// indexOf is the engine's file of names, which lies beside the layers of an image.
func indexOf(img *engine.Image) string {
	driver := img.GraphDriver.Name
	root, _, ok := strings.Cut(img.GraphDriver.Data["UpperDir"], "/"+driver+"/")
	if !ok || driver == "" || !filepath.IsAbs(root) {
		return ""
	}
	return filepath.Join(root, "image", driver, "repositories.json")
}

// stamp is what a file of names looks like, and when it last changed. The engine's
// socket and the boot are in it: another engine has other names.
func (r *Runtime) stamp(index string) (stamp string, changed time.Time, err error) {
	boot, err := procid.BootID()
	if err != nil {
		return "", time.Time{}, err
	}
	text := []byte(boot)
	for _, path := range []string{r.engine.SocketPath(), index} {
		info, err := os.Stat(path)
		if err != nil {
			return "", time.Time{}, err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return "", time.Time{}, fmt.Errorf("%s: no such thing as an inode", path)
		}
		text = fmt.Appendf(text, " %d:%d", st.Dev, st.Ino)
		if path == index {
			text = fmt.Appendf(text, " %d %d", info.Size(), info.ModTime().UnixNano())
			changed = info.ModTime()
		}
	}
	return string(text), changed, nil
}
