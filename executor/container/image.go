package container

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
)

// The pull policies.
const (
	pullAlways       = "Always"
	pullIfNotPresent = "IfNotPresent"
	pullNever        = "Never"
)

// imageFacts are what a launch needs to know of its image.
type imageFacts struct {
	// Digest is that of the image in its registry, or its id.
	Digest string `json:"digest"`
	// StopSignal is empty where the image has none of its own.
	StopSignal string `json:"stopSignal,omitempty"`
}

// Prepare makes sure that the image is on the agent, as the pull policy says;
// an empty policy is IfNotPresent.
func (r *Runtime) Prepare(ctx context.Context, t *executor.Task, progress func(string)) error {
	if t.Spec == nil || t.Spec.Container == nil {
		return fmt.Errorf("task %q: it has no container specification", t.ID)
	}
	c := t.Spec.Container
	name, tag, err := splitReference(c.Image)
	if err != nil {
		return &executor.RefusedError{Err: err}
	}
	// What is refused is refused before an image is pulled for it.
	if _, err := r.compile(t, ""); err != nil {
		return err
	}
	policy := c.PullPolicy
	switch policy {
	case "":
		policy = pullIfNotPresent
	case pullAlways, pullIfNotPresent, pullNever:
	default:
		return &executor.RefusedError{Err: fmt.Errorf("imagePullPolicy %q is unknown; use Always, IfNotPresent or Never", policy)}
	}
	began := time.Now()
	var img *engine.Image
	if policy != pullAlways {
		if known, ok := r.known(c.Image); ok {
			r.mu.Lock()
			r.images[t.ID] = known
			r.mu.Unlock()
			return nil
		}
		img, err = r.engine.Image(ctx, c.Image)
		switch {
		case err != nil && !engine.IsNotFound(err):
			return err
		case err != nil && policy == pullNever:
			return fmt.Errorf("image %q is not on this agent and imagePullPolicy is Never (%s); load it with docker load, or use IfNotPresent", c.Image, reason(err))
		}
	}
	if img == nil {
		began = time.Time{} // when it is looked up after the pull is not known here
		p := pull{r: r, ref: c.Image, name: name, tag: tag, auth: auth(c.RegistryUser, c.RegistryPass, name), always: policy == pullAlways, progress: progress}
		if img, err = p.once(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("pull of image %q: %w", c.Image, ctx.Err())
			}
			if noRoom(err) {
				return fmt.Errorf("image %q cannot be pulled: there is no room on the disk of the Docker Engine; free some, for example with docker image prune: %w", c.Image, scrub(err, c.RegistryPass))
			}
			return fmt.Errorf("image %q cannot be pulled (imagePullPolicy %s): %w; check the name, the registry and imagePullUser and imagePullPasswd, or load it with docker load", c.Image, policy, scrub(err, c.RegistryPass))
		}
	}
	facts := imageFacts{Digest: img.Digest(name), StopSignal: img.Config.StopSignal}
	if tag != "" { // an id is in no index
		r.note(c.Image, facts, img, began)
	}
	r.mu.Lock()
	r.images[t.ID] = facts
	r.mu.Unlock()
	return nil
}

// The checks of a reference's parts are a little wider than a registry's own.
// What matters is that nothing passes which means something else in a URL. They
// are no regular expressions because every executor would pay their memory.

// isName: an optional registry host[:port], and path elements that begin with a letter or digit.
func isName(s string) bool {
	for i, part := range strings.Split(s, "/") {
		if i == 0 {
			if host, port, ok := strings.Cut(part, ":"); ok {
				if !consists(port, digit) {
					return false
				}
				part = host
			}
		}
		if !consists(part, wordOr("._-")) || !wordOr("")(part[0]) {
			return false
		}
	}
	return true
}

func isTag(s string) bool {
	return consists(s, wordOr("._-")) && wordOr("_")(s[0]) && len(s) <= 128
}

func isDigest(s string) bool {
	algorithm, hex, _ := strings.Cut(s, ":")
	return consists(algorithm, wordOr("")) && len(hex) >= 32 && consists(hex, wordOr(""))
}

// consists reports whether s is made of such bytes only, and not empty.
func consists(s string, of func(byte) bool) bool {
	for i := range len(s) {
		if !of(s[i]) {
			return false
		}
	}
	return s != ""
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// wordOr accepts letters, digits and the given others.
func wordOr(others string) func(byte) bool {
	return func(c byte) bool {
		return digit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte(others, c) >= 0
	}
}

// splitReference splits an image's name from its tag or digest. Without either
// the tag is latest: an engine asked to pull without a tag pulls every tag.
func splitReference(ref string) (name, tag string, err error) {
	bad := fmt.Errorf("image %q is no image reference; write it as name, name:tag or name@sha256:digest", ref)
	if n, digest, ok := strings.Cut(ref, "@"); ok {
		// A tag beside a digest says nothing: the digest decides.
		if i := strings.LastIndexByte(n, ':'); i > strings.LastIndexByte(n, '/') {
			n = n[:i]
		}
		if !isName(n) || !isDigest(digest) {
			return "", "", bad
		}
		return n, digest, nil
	}
	name, tag = ref, "latest"
	if isDigest(ref) {
		return ref, "", nil // an image's id
	}
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		name, tag = ref[:i], ref[i+1:]
	}
	if !isName(name) || !isTag(tag) {
		return "", "", bad
	}
	return name, tag, nil
}

// auth makes the header that carries the credentials to the engine.
func auth(user, password, name string) string {
	if user == "" && password == "" {
		return ""
	}
	server := "https://index.docker.io/v1/"
	// The first part of a name is a registry when it looks like a host.
	if host, _, ok := strings.Cut(name, "/"); ok && (strings.ContainsAny(host, ".:") || host == "localhost") {
		server = host
	}
	b, err := json.Marshal(map[string]string{"username": user, "password": password, "serveraddress": server})
	if err != nil {
		return "" // cannot happen: strings only
	}
	return base64.URLEncoding.EncodeToString(b)
}

// reason is the engine's own text.
func reason(err error) string {
	var e *engine.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// scrub keeps a password out of an error: some registries and proxies repeat
// what they were sent.
func scrub(err error, password string) error {
	if password == "" || !strings.Contains(err.Error(), password) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), password, "****"))
}
