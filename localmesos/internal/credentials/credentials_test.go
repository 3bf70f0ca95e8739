package credentials

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const secret = "kitesurf"
	for _, c := range []struct{ text, err string }{
		{`{"credentials":[{"principal":"sherman","secret":"kitesurf"}]}`, ""},
		{" \n" + `{"credentials":[{"principal":"sherman","secret":"kitesurf"},{"principal":"b","secret":"c"}],"new":1}`, ""},
		{"sherman kitesurf\n", ""},
		{"\nother secret\n  sherman\tkitesurf", ""},
		{"", "it must hold a credential at least"},
		{"{}", "it must hold a credential at least"},
		{`{"credentials":[{"principal":"sherman"}]}`, "credentials[0] needs a principal and a secret"},
		{`{"credentials":[{"principal":"sherman","secret":"kitesurf}]}`, "it is not valid JSON"},
		{`{"credentials":"kitesurf"}`, "it is not valid JSON"},
		{`{"credentials":[{"principal":"a:b","secret":"kitesurf"}]}`, `credentials[0]: principal "a:b" cannot be used`},
		{"a b\nkitesurf", "line 2 is not a principal, a space and a secret"},
		{"a b c kitesurf", "line 1 is not a principal"},
		{"a kitesurf\na b", `line 2: principal "a" has two secrets`},
	} {
		l, err := Parse([]byte(c.text))
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v, want %s", c.text, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if text := fmt.Sprintf("%v %+v %#v %s", l, l, l, l); strings.Contains(text, "sherman") {
			t.Error(text)
		}
		for _, a := range []struct {
			user, password string
			want           bool
		}{{"sherman", secret, true}, {"sherman", "", false}, {"sherman", "kitesurfs", false}, {"", "", false}, {"nobody", secret, false}} {
			r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
			r.SetBasicAuth(a.user, a.password)
			if principal, ok := l.Check(r); ok != a.want || ok != (principal == "sherman") {
				t.Errorf("%s: %s:%s is %v, %q", c.text, a.user, a.password, ok, principal)
			}
		}
		for _, header := range []string{"", "Basic", "Basic %%", "Bearer c2hlcm1hbjpraXRlc3VyZg==", "Basic c2hlcm1hbg=="} {
			r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
			r.Header.Set("Authorization", header)
			if _, ok := l.Check(r); ok {
				t.Errorf("%s: %q is taken", c.text, header)
			}
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "credentials")
	if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		if err := os.WriteFile(path, []byte("a b"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		l, open, err := Read("file://" + path)
		if err != nil || l.Len() != 1 || open != want {
			t.Errorf("%v: %v, open %v, %v", mode, l, open, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"credentials":[{"principal":"sherman","secret":"kitesurf"}]}`))
	f.Add([]byte("sherman kitesurf\nb c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := Parse(data); err == nil && l.Len() == 0 {
			t.Error("an empty list is taken")
		}
	})
}
