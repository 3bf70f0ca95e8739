package api

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Sizes that no field of an artifact may exceed.
const (
	maxLabels     = 256
	maxLabelKey   = 317
	maxLabelValue = 4096
	maxTasks      = 64
	maxPorts      = 256
	maxEnv        = 2000
	maxText       = 128 << 10
	maxSeconds    = 86400
)

// checker collects what is wrong with one object. Its methods check one rule
// each; the kinds put them together.
type checker struct {
	found findings
}

func (c *checker) fail(path string, value any, format string, args ...any) {
	if c.found.full() {
		return
	}
	n := len(c.found.errs)
	c.found.errs.Add(path, value, format, args...)
	c.found.errs[n].Value = clip(c.found.errs[n].Value)
}

func (c *checker) warn(path, format string, args ...any) {
	var e Errors
	e.Add(path, nil, format, args...)
	c.found.warn(e[0])
}

func (c *checker) label(path, value string) {
	switch {
	case value == "":
		c.fail(path, nil, "is required: letters, digits and '-', at most 63 of them")
	case !isLabel(value):
		c.fail(path, value, "must be a DNS label: letters, digits and '-', at most 63, the first and last not '-'")
	}
}

func (c *checker) required(path, value string) bool {
	if strings.TrimSpace(value) == "" {
		c.fail(path, nil, "is required")
		return false
	}
	return c.text(path, value)
}

// text refuses what neither environment nor command line nor store can carry.
func (c *checker) text(path, value string) bool {
	switch {
	case strings.ContainsRune(value, 0):
		c.fail(path, nil, "must not contain the character NUL")
	case len(value) > maxText:
		c.fail(path, nil, "is longer than %d KiB; put it into a configmap's file", maxText>>10)
	default:
		return true
	}
	return false
}

// oneOf checks a value of a closed set. A value such as "a|b|c" is what
// templates show where one of the alternatives has to be chosen.
func (c *checker) oneOf(path, value string, allowed ...string) bool {
	for _, a := range allowed {
		if value == a {
			return true
		}
	}
	for _, a := range allowed {
		if strings.EqualFold(a, value) {
			c.fail(path, value, "write it as %s", a)
			return false
		}
	}
	if strings.Contains(value, "|") {
		c.fail(path, value, "choose one of the alternatives: %s", strings.Join(allowed, ", "))
		return false
	}
	c.fail(path, value, "must be one of %s%s", strings.Join(allowed, ", "), didYouMean(value, allowed))
	return false
}

func (c *checker) seconds(path string, v int64) {
	switch {
	case v < 0:
		c.fail(path, v, "must not be negative; it is a number of seconds")
	case v > maxSeconds:
		c.fail(path, v, "is more than a day (%d seconds)", maxSeconds)
	}
}

func (c *checker) notNegative(path string, v int64) {
	if v < 0 {
		c.fail(path, v, "must not be negative")
	}
}

func (c *checker) most(path string, n, limit int, what string) {
	if n > limit {
		c.fail(path, n, "has more than %d %s", limit, what)
	}
}

func (c *checker) meta(path string, m *ObjectMeta) {
	c.label(joinPath(path, "name"), m.Name)
	c.label(joinPath(path, "namespace"), m.Namespace)
	c.labels(joinPath(path, "labels"), m.Labels)
	c.labels(joinPath(path, "annotations"), m.Annotations)
}

func (c *checker) labels(path string, labels map[string]string) {
	c.most(path, len(labels), maxLabels, "entries")
	for _, k := range sortedKeys(labels) {
		switch {
		case k == "":
			c.fail(path, nil, "has an empty key")
		case len(k) > maxLabelKey:
			c.fail(joinPath(path, k), nil, "the key is longer than %d characters", maxLabelKey)
		case strings.ContainsFunc(k, isControl):
			c.fail(joinPath(path, k), nil, "the key must not contain control characters")
		case len(labels[k]) > maxLabelValue:
			c.fail(joinPath(path, k), nil, "the value is longer than %d characters", maxLabelValue)
		case strings.ContainsRune(labels[k], 0):
			c.fail(joinPath(path, k), nil, "the value must not contain the character NUL")
		}
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// absolute checks a path of the agent or of a container's root.
func (c *checker) absolute(at, value string) {
	switch {
	case !strings.HasPrefix(value, "/"):
		c.fail(at, value, "must be an absolute path")
	default:
		c.noParents(at, value)
	}
}

func (c *checker) noParents(at, value string) {
	for _, element := range strings.Split(value, "/") {
		if element == ".." {
			remedy := ""
			if clean := path.Clean(value); clean != ".." && !strings.HasPrefix(clean, "../") && !strings.HasPrefix(value, "$") {
				// What a variable stands for is not known, so nor is what .. behind it leads to.
				remedy = fmt.Sprintf("; write %q", clean)
			}
			c.fail(at, value, "must not contain \"..\"%s", remedy)
			return
		}
	}
}

func (c *checker) base64(path, value string) {
	if _, err := base64.StdEncoding.DecodeString(value); err != nil {
		c.fail(path, nil, "is not base64; encode it, for example with: base64 -w0")
	}
}

// address checks a URL against the schemes that can be fetched. What variables
// stand for is not known yet, so only the text around them is looked at.
func (c *checker) address(path, value string, schemes ...string) {
	if !c.required(path, value) {
		return
	}
	plain, _ := replace(value, allOurs, func(string) string { return "x" })
	u, err := url.Parse(plain)
	switch {
	case err != nil:
		// The error repeats the address, which may hold a password.
		c.fail(path, nil, "is not an address such as %s://...", schemes[len(schemes)-1])
	case u.User != nil:
		c.fail(path, nil, "must not hold user and password, which show up in logs; use the keys for them")
	case u.Scheme == "":
		c.fail(path, value, "has no scheme; use one of %s", strings.Join(schemes, ", "))
	case !contains(schemes, u.Scheme):
		c.fail(path, value, "the scheme %q is not supported; use one of %s", u.Scheme, strings.Join(schemes, ", "))
	case u.Scheme == "file" && (u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/")):
		c.fail(path, value, "a file's address needs an absolute path: file:///path")
	case u.Scheme != "file" && u.Host == "":
		c.fail(path, value, "has no host")
	}
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
