package api

import (
	"strings"
	"testing"
)

func TestGrammars(t *testing.T) {
	t.Parallel()
	x63, x64 := strings.Repeat("x", 63), strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		is      func(string) bool
		yes, no []string
	}{
		"label":    {isLabel, []string{"a", "0", "a-b", "defaultGroup", x63}, []string{"", "-a", "a-", "a.b", "a_b", "é", "a b", x64, "a\n"}},
		"name":     {isName, []string{"svc_port", "http_8080", "a.b-c", "tcp-28800"}, []string{"", "_a", "a_", "a/b", x64}},
		"data key": {isDataKey, []string{"a", ".conf", "a_b.c-", "-"}, []string{"", ".", "..", "a/b", strings.Repeat("x", 254)}},
		"image":    {isImage, []string{"a", "redis:7", "h:5000/a/b@sha256:0a"}, []string{"", "-v", "/x", "a b", ".a"}},
		"domain":   {isDomain, []string{"a", "a.b", "*.a.b", "_x.a", "kubernetes.io"}, []string{"", "*", "a..b", ".a", "a.", "-a.b", "a.*.b", x64 + ".a", strings.Repeat("a.", 127)}},
		"number":   {isJSONNumber, []string{"0", "-0", "1.5", "1e9", "-1.5E-3", "10"}, []string{"", "01", "+1", "1.", ".5", "1e", "0x1", "-", " 1", "1 ", "1\n", "NaN", "null", "\"1\"", "[1]"}},
	} {
		for _, s := range c.yes {
			if !c.is(s) {
				t.Errorf("%s: %q is refused", name, s)
			}
		}
		for _, s := range c.no {
			if c.is(s) {
				t.Errorf("%s: %q is accepted", name, s)
			}
		}
	}
}
