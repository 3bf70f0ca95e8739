// Package credentials holds principals and their secrets, as Apache Mesos reads
// them from files, and checks HTTP basic authentication against them.
//
// It is for localmesos only. A secret must never leave it: not in an error, not
// in a log, not as a value that could be printed.
package credentials

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// List holds the digests of secrets by principal.
type List struct {
	digests map[string][sha256.Size]byte
}

// Read reads a file of credentials, in JSON, {"credentials":[{"principal":"p","secret":"s"}]},
// or as text, with a principal and its secret in each line. The path may begin
// with file://. open tells that everybody may read the file, which deserves a warning.
func Read(path string) (l *List, open bool, err error) {
	path = strings.TrimPrefix(path, "file://")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("reading the credentials: %w; give the path of a readable file", err)
	}
	if l, err = Parse(data); err != nil {
		return nil, false, fmt.Errorf("credentials file %s: %w", path, err)
	}
	info, err := os.Stat(path)
	return l, err == nil && info.Mode().Perm()&0o007 != 0, nil
}

// Parse reads the text of a file of credentials.
func Parse(data []byte) (*List, error) {
	l := &List{digests: map[string][sha256.Size]byte{}}
	add := l.addLines
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		add = l.addJSON
	}
	if err := add(data); err != nil {
		return nil, err
	}
	if len(l.digests) == 0 {
		return nil, errors.New(`it must hold a credential at least: {"credentials":[{"principal":"...","secret":"..."}]}`)
	}
	return l, nil
}

func (l *List) addJSON(data []byte) error {
	var file struct {
		Credentials []struct{ Principal, Secret *string }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		// What the decoder says may quote the file.
		return errors.New(`it is not valid JSON of the form {"credentials":[{"principal":"...","secret":"..."}]}`)
	}
	for i, c := range file.Credentials {
		if c.Principal == nil || c.Secret == nil {
			return fmt.Errorf("credentials[%d] needs a principal and a secret, both texts", i)
		}
		if err := l.add(*c.Principal, *c.Secret); err != nil {
			return fmt.Errorf("credentials[%d]: %w", i, err)
		}
	}
	return nil
}

func (l *List) addLines(data []byte) error {
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return fmt.Errorf("line %d is not a principal, a space and a secret", n)
		}
		if err := l.add(fields[0], fields[1]); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

func (l *List) add(principal, secret string) error {
	switch _, twice := l.digests[principal]; {
	case principal == "" || strings.Contains(principal, ":"):
		return fmt.Errorf("principal %q cannot be used: it must not be empty or hold a colon", principal)
	case secret == "":
		return fmt.Errorf("principal %q has an empty secret", principal)
	case twice:
		return fmt.Errorf("principal %q has two secrets", principal)
	}
	l.digests[principal] = sha256.Sum256([]byte(secret))
	return nil
}

// Check returns who made a request, by its basic authentication; false when
// there is none or it is wrong. It takes as long for a known principal as for another.
func (l *List) Check(r *http.Request) (principal string, ok bool) {
	principal, secret, given := r.BasicAuth()
	if !given {
		return "", false
	}
	digest := sha256.Sum256([]byte(secret))
	want, known := l.digests[principal]
	if subtle.ConstantTimeCompare(digest[:], want[:]) != 1 || !known {
		return "", false
	}
	return principal, true
}

// Len is the number of principals.
func (l *List) Len() int { return len(l.digests) }

// String names nothing of what the list holds.
func (l *List) String() string { return fmt.Sprintf("%d credentials", l.Len()) }

// GoString is String, for %#v.
func (l *List) GoString() string { return l.String() }
