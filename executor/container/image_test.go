package container

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/image"

	"tandem/executor"
)

// registry is just enough of the distribution protocol for one small image.
type registry struct {
	*httptest.Server
	user, password string

	mu   sync.Mutex
	gets int
	// broken is how many manifests are still answered with 503.
	broken int
	// piece is called between the pieces of 512 KiB in which blobs are sent; may be nil.
	piece  func(context.Context)
	digest string
}

// newRegistry has one image, whose only file is padded by so many bytes.
func newRegistry(t *testing.T, user, password string, padding ...int) *registry {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	content := []byte{}
	for _, n := range padding {
		content = append(content, make([]byte, n)...)
	}
	if err := w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	w.Close()
	blobs := map[string][]byte{}
	put := func(b []byte) (string, int) {
		d := fmt.Sprintf("sha256:%x", sha256.Sum256(b))
		blobs[d] = b
		return d, len(b)
	}
	layerDigest, layerSize := put(layer.Bytes())
	config, _ := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Cmd": []string{"/x"}}, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDigest}}})
	configDigest, configSize := put(config)
	const v2 = "application/vnd.docker.distribution.manifest.v2+json"
	manifest, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": v2,
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "digest": configDigest, "size": configSize},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", "digest": layerDigest, "size": layerSize}}})
	r := &registry{user: user, password: password, digest: fmt.Sprintf("sha256:%x", sha256.Sum256(manifest))}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if u, p, _ := req.BasicAuth(); user != "" && (u != user || p != password) {
			w.Header().Set("Www-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`, http.StatusUnauthorized)
			return
		}
		path, name, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/"), "/manifests/")
		switch {
		case req.URL.Path == "/v2/":
		case path == "app" && (name == "v1" || strings.HasPrefix(name, "sha256:")):
			r.mu.Lock()
			r.gets++
			bad := r.broken > 0
			r.broken--
			r.mu.Unlock()
			if bad {
				http.Error(w, `{"errors":[{"code":"UNAVAILABLE","message":"come back later"}]}`, http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("Content-Type", v2)
			w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(manifest)))
			_, _ = w.Write(manifest)
		case strings.HasPrefix(path, "app/blobs/"):
			b, ok := blobs[strings.TrimPrefix(path, "app/blobs/")]
			if !ok {
				http.NotFound(w, req)
				return
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			for part := range slices.Chunk(b, 512<<10) {
				_, _ = w.Write(part)
				if f, ok := w.(http.Flusher); ok {
					f.Flush()
				}
				if r.piece != nil {
					r.piece(req.Context())
				}
			}
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.gets = 0 }()
	return r.gets
}

// TestE14PullWithCredentialsOfItsOwn: each container brings its own, and they show up nowhere.
func TestE14PullWithCredentialsOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reg := newRegistry(t, "joe", "hunter2secret")
	host := strings.TrimPrefix(reg.URL, "http://")
	ref := host + "/app:v1"
	t.Cleanup(func() { _, _ = docker.ImageRemove(f.ctx(), ref, image.RemoveOptions{Force: true}) })
	prepare := func(policy, user, password string) (string, error) {
		var said []string
		task := f.task("", func(e *executor.Task) {
			c := e.Spec.Container
			c.Image, c.PullPolicy, c.RegistryUser, c.RegistryPass = ref, policy, user, password
		})
		err := f.Prepare(f.ctx(), task, func(s string) { said = append(said, s) })
		return strings.Join(said, "\n"), err
	}
	if _, err := prepare("Never", "", ""); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("image %q is not on this agent and imagePullPolicy is Never", ref)) {
		t.Errorf("never: %v", err)
	}
	if _, err := prepare("IfNotPresent", "joe", "wrongsecret"); err == nil || !strings.Contains(err.Error(), "imagePullUser") || strings.Contains(err.Error(), "wrongsecret") {
		t.Errorf("wrong password: %v", err)
	}
	said, err := prepare("", "joe", "hunter2secret")
	if err != nil || !strings.Contains(said, "pulling "+ref) || strings.Contains(said, "hunter2secret") {
		t.Fatalf("pull: %v, %q", err, said)
	}
	reg.asked()
	if _, err := prepare("IfNotPresent", "", ""); err != nil || reg.asked() > 0 {
		t.Errorf("present, yet pulled: %v", err)
	}
	if _, err := prepare("Always", "joe", "hunter2secret"); err != nil || reg.asked() == 0 {
		t.Errorf("always, yet not pulled: %v", err)
	}
	if _, err := prepare("Never", "", ""); err != nil {
		t.Errorf("never, but present: %v", err)
	}
	if _, err := prepare("Sometimes", "", ""); err == nil {
		t.Error("an unknown policy is accepted")
	}
}

func TestMissingImageNamesPolicyReasonRemedy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ref := strings.TrimPrefix(newRegistry(t, "", "").URL, "http://") + "/app:nosuch"
	task := f.task("", func(e *executor.Task) { e.Spec.Container.Image = ref })
	err := f.Prepare(f.ctx(), task, func(string) {})
	for _, want := range []string{ref, "imagePullPolicy IfNotPresent", "manifest", "check the name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if err := f.Create(f.ctx(), task); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("image %q is not on this agent", ref)) {
		t.Errorf("create without image: %v", err)
	}
	if ids, _ := f.List(f.ctx()); len(ids) > 0 {
		t.Errorf("records %v", ids)
	}
}
