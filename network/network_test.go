package network

import (
	"strings"
	"testing"

	"tandem/api"
)

func TestParseMode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode, kind string
		want       Mode
		name, err  string
	}{
		{"", "", None, "", ""},
		{"NONE", "", None, "", ""},
		{"HOST", "", Host, "", ""},
		{"host", "CNM", Host, "", ""},
		{"BRIDGE", "cni", Bridge, "", ""},
		{"USER", "", CustomCNM, "", ""},
		{"USER", "cni", CustomCNI, "", ""},
		{"backend", "", CustomCNM, "backend", ""},
		{"backend", "CNI", CustomCNI, "backend", ""},
		{"HOST", "cnx", None, "", `networktype "cnx" is unknown; use cni or cnm`},
		{"container:0123", "", None, "", "neither HOST"},
		{"default", "", None, "", "cannot name a network"},
		{"-x", "", None, "", "neither HOST"},
		{strings.Repeat("n", 129), "", None, "", "at most 128"},
	} {
		got, name, err := ParseMode(c.mode, c.kind)
		if !matches(err, c.err) {
			t.Errorf("ParseMode(%q, %q): error %v, want %q", c.mode, c.kind, err, c.err)
			continue
		}
		if got != c.want || name != c.name {
			t.Errorf("ParseMode(%q, %q) = %v, %q; want %v, %q", c.mode, c.kind, got, name, c.want, c.name)
		}
	}
}

func TestModeRoundTrip(t *testing.T) {
	t.Parallel()
	for _, m := range []Mode{None, Host, Bridge, CustomCNM, CustomCNI} {
		got, err := FromTask(m.Task("backend"))
		if err != nil || got != m {
			t.Errorf("FromTask(%v) = %v, %v", m, got, err)
		}
	}
	for _, n := range []api.TaskNetwork{
		{Mode: "CUSTOM"}, {Mode: "CUSTOM", Name: "container:1"}, {Mode: "WHAT"}, {Mode: "USER"}, {Mode: "CUSTOM", Name: "a", Type: "x"},
	} {
		if m, err := FromTask(n); err == nil {
			t.Errorf("FromTask(%+v) = %v, want an error", n, m)
		}
	}
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "tcp", "TCP": "tcp", "http": "tcp", "HTTPS": "tcp", "udp": "udp", "UDP": "udp"} {
		if got, err := Protocol(in); err != nil || got != want {
			t.Errorf("Protocol(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	if _, err := Protocol("sctp"); !matches(err, `protocol "sctp" is unknown; use tcp`) {
		t.Errorf("sctp: %v", err)
	}
}

// matches reports whether err contains text, or is nil when text is empty.
func matches(err error, text string) bool {
	if text == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), text)
}
