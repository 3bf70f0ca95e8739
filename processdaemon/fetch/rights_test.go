package fetch

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// TestFilesAreReadWithTheRightsOfTheUser: whatever the cache has of them already, and
// whatever is known of what they hold.
func TestFilesAreReadWithTheRightsOfTheUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	dir := testkit.PublicDir(t)
	f := newFetcher(t, quick())
	owner, stranger := &syscall.Credential{Uid: 65533, Gid: 65533}, &syscall.Credential{Uid: 65534, Gid: 65534}
	secret, lookalike := filepath.Join(dir, "secret"), filepath.Join(dir, "lookalike")
	put(t, secret, "secret")
	put(t, lookalike, "another")
	for path, as := range map[string]*syscall.Credential{secret: owner, lookalike: stranger} {
		if err := os.Chmod(path, 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	sum := sumOf([]byte("secret"))
	refused := func(what string, u protocol.URI) {
		t.Helper()
		out := filepath.Join(dir, "out-"+what)
		u.OutputDir = out
		if _, err := f.Get(t.Context(), stranger, u, nil); err == nil {
			t.Errorf("%s: got", what)
		}
		if _, err := f.Provide(t.Context(), u, "", stranger, nil); err == nil {
			t.Errorf("%s: provided", what)
		}
		if _, err := os.Lstat(out); err == nil {
			t.Errorf("%s: something is there", what)
		}
	}
	all := func() {
		t.Helper()
		refused("path", protocol.URI{Value: secret})
		refused("uri", protocol.URI{Value: "file://" + secret, PullPolicy: Always})
		refused("checksum", protocol.URI{Value: "file://" + secret + "#sha256=" + sum})
		refused("digest", protocol.URI{Value: secret, Digest: digestPrefix + sum})
		// The checksum of what somebody else has read opens nothing.
		refused("another file", protocol.URI{Value: "file://" + lookalike + "#sha256=" + sum})
		s, _ := server(t, http.NotFound)
		refused("a server", protocol.URI{Value: s.URL + "/x#sha256=" + sum})
	}
	all()
	for range 2 {
		for _, u := range []protocol.URI{{Value: secret}, {Value: "file://" + secret + "#sha256=" + sum}, {Value: secret, Digest: digestPrefix + sum}} {
			if d, err := f.Get(t.Context(), owner, u, nil); err != nil || d != digestPrefix+sum {
				t.Errorf("%+v: %s %v", u, d, err)
			}
		}
		all()
	}
	leftNothing(t, f)
	// Who is given the right has it from then on.
	if err := os.Chmod(secret, 0o444); err != nil {
		t.Fatal(err)
	}
	u := protocol.URI{Value: secret, OutputDir: filepath.Join(dir, "out")}
	if _, err := f.Provide(t.Context(), u, "", stranger, nil); err != nil {
		t.Error(err)
	}
	want(t, filepath.Join(u.OutputDir, "secret"), "secret")
}

// TestUnchangedFileIsCopiedOnce: and again when it may have changed since.
func TestUnchangedFileIsCopiedOnce(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, quick())
	// It must have been there for a while: what was just written may change once more at the same instant.
	old := "/etc/passwd"
	u := protocol.URI{Value: old}
	digest, err := f.Get(t.Context(), nil, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(f.blob(digest))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(t.Context(), nil, u, nil); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(f.blob(digest)); err != nil || !os.SameFile(before, after) {
		t.Errorf("copied twice: %v", err)
	}
	young := filepath.Join(t.TempDir(), "young")
	for i := range 20 {
		content := fmt.Sprintf("%02d", i)
		put(t, young, content)
		if d, err := f.Get(t.Context(), nil, protocol.URI{Value: young}, nil); err != nil || d != digestPrefix+sumOf([]byte(content)) {
			t.Errorf("%d: %s %v", i, d, err)
		}
	}
}

// TestChecksumsOpenNothingThatIsGuarded: content that a server gave to who has a password is
// for nobody else, content that it gave to anybody is.
func TestChecksumsOpenNothingThatIsGuarded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, pwd, _ := r.BasicAuth(); r.URL.Path == "/open" || pwd == "geheim" {
			whole(w, r)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	f := newFetcher(t, quick())
	sum := "#sha256=" + sumOf(body)
	guarded := protocol.URI{Value: s.URL + "/guarded" + sum, User: "me", Password: "geheim"}
	for range 2 {
		if _, err := f.Get(t.Context(), nil, guarded, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.headers()); n != 1 {
		t.Errorf("%d requests for what it has", n)
	}
	for _, u := range []protocol.URI{{Value: s.URL + "/guarded" + sum}, {Value: s.URL + "/elsewhere" + sum}, {Value: s.URL + "/guarded" + sum, User: "you", Password: "x"}} {
		if _, err := f.Get(t.Context(), nil, u, nil); err == nil || !strings.Contains(err.Error(), "answered 401") {
			t.Errorf("%+v: %v", u, err)
		}
	}
	if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/open"}, nil); err != nil {
		t.Fatal(err)
	}
	n := len(s.headers())
	again, err := New(f.dir, Limits{}, &unpack.Runner{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/elsewhere" + sum}, nil); err != nil || len(s.headers()) != n {
		t.Errorf("%v, %d requests", err, len(s.headers())-n)
	}
	// Somebody's download of the same does not close it again.
	guarded.Value = s.URL + "/guarded"
	if _, err := f.Get(t.Context(), nil, guarded, nil); err != nil {
		t.Fatal(err)
	}
	if !f.forAnybody(digestPrefix + sumOf(body)) {
		t.Error("closed")
	}
}

// TestPasswordsOpenTheirOwnContentOnly: what one fetched with a password, another password does
// not open; the right one does, without asking again, also after a restart.
func TestPasswordsOpenTheirOwnContentOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, pwd, _ := r.BasicAuth(); pwd != "geheim" && pwd != "geheim too" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		whole(w, r)
	})
	f := newFetcher(t, quick())
	asked := 0
	for i, c := range []struct {
		password string
		may      bool
		asks     int
	}{
		{"geheim", true, 1}, {"geheim", true, 0}, {"wrong", false, 1}, {"", false, 1}, {"geheim", true, 0},
		{"geheim too", true, 1}, {"geheim too", true, 0}, {"wrong", false, 1},
	} {
		_, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x", User: "me", Password: c.password}, nil)
		if (err == nil) != c.may {
			t.Errorf("%d: %v", i, err)
		}
		if n := len(s.headers()); n != asked+c.asks {
			t.Errorf("%d: %d requests, want %d", i, n-asked, c.asks)
		}
		asked = len(s.headers())
		if f, err = New(f.dir, quick(), &unpack.Runner{}); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(f.index())
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v %v", entries, err)
	}
	if b, err := os.ReadFile(filepath.Join(f.index(), entries[0].Name())); err != nil || strings.Contains(string(b), "geheim") {
		t.Errorf("%s %v", b, err)
	}
	leftNothing(t, f)
}
