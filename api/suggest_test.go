package api

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		known string
		want  map[string]string
	}{
		{"containerPort hostPort name protocol hostIP", map[string]string{
			"hostprt": "hostPort", "prtocol": "protocol", "naem": "name", "HOSTPORT": "hostPort", "containerport": "containerPort",
			"proto": "protocol", "pro": "protocol", "pr": "", "xyz": "", "": "", "resources": "", strings.Repeat("h", 1000): "",
		}},
		{"apply validate get describe delete scale", map[string]string{
			"aply": "apply", "appyl": "apply", "desc": "describe", "scael": "scale", "gte": "get", "run": "", "DELETE": "delete", "dleet": "delete",
		}},
		{"blau gelb größe", map[string]string{"grösse": "größe", "grße": "größe", "gel": "gelb"}},
		{"", map[string]string{"a": ""}},
	} {
		for word, want := range c.want {
			if got := Nearest(word, strings.Fields(c.known)); got != want {
				t.Errorf("%.20q of %q: got %q, want %q", word, c.known, got, want)
			}
		}
	}
}
