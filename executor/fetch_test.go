package executor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tandem/api"
)

// quickFetch is fetchSources without its pauses.
func quickFetch(t *testing.T, s *api.TaskSpec) error {
	f := &sourceFetcher{got: map[api.TaskSource][]byte{}, pause: time.Millisecond, progress: func(string) {}}
	defer f.close()
	return f.fill(t.Context(), s)
}

func TestSourcesAreFetched(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "u" || password != "p" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway) // once: it is tried again
			return
		}
		fmt.Fprint(w, "value")
	}))
	defer srv.Close()
	src := api.TaskSource{URL: srv.URL + "/a", User: "u", Password: "p"}
	other := src
	s := &api.TaskSpec{Env: []api.TaskEnvVar{{Name: "A", Source: &src}, {Name: "B", Value: "b"}}, Files: []api.TaskFile{{Path: "/f", Source: &other}}}
	if err := quickFetch(t, s); err != nil {
		t.Fatal(err)
	}
	if s.Env[0].Value != "value" || !s.Env[0].Literal || s.Env[1].Value != "b" || string(s.Files[0].Content) != "value" {
		t.Errorf("%+v %+v", s.Env, s.Files)
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestSourcesThatCannotBeFetched(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", sourceLimit+1))
		case "/big":
			fmt.Fprint(w, strings.Repeat("x", sourceEnvLimit+1))
		case "/zero":
			fmt.Fprint(w, "a\x00b")
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/nonsense":
			w.Header().Set("Location", "http://u:s3cret@[::/x?s3cret")
			w.WriteHeader(http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, srv.URL, http.StatusFound) }))
	defer secure.Close()
	for _, c := range []struct {
		url, want string
		file      bool
	}{
		{srv.URL + "/none?token=s3cret", "404", false},
		{srv.URL + "/large", "larger than", true},
		{srv.URL + "/big", "take it as a file", false},
		{srv.URL + "/zero", "zero byte", false},
		{srv.URL + "/loop", "redirections", false},
		{srv.URL + "/nonsense", "redirects to what is no address", true},
		{secure.URL, "certificate", true},
		{"ftp://h/x", "http or https", true},
		{"http://u:s3cret@h/x", "http or https", true},
	} {
		s := &api.TaskSpec{}
		if c.file {
			s.Files = []api.TaskFile{{Path: "/f", Source: &api.TaskSource{URL: c.url}}}
		} else {
			s.Env = []api.TaskEnvVar{{Name: "A", Source: &api.TaskSource{URL: c.url, Password: "s3cret"}}}
		}
		err := quickFetch(t, s)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", c.url, err)
		}
	}
	to, _ := http.NewRequest(http.MethodGet, "http://h/", http.NoBody)
	from, _ := http.NewRequest(http.MethodGet, "https://h/", http.NoBody)
	if err := checkRedirect(to, []*http.Request{from}); err == nil {
		t.Error("a redirect from https to http is followed")
	}
}
