// Package ssl makes TLS configurations from libprocess's variables, LIBPROCESS_SSL_ENABLED,
// LIBPROCESS_SSL_CERT_FILE, LIBPROCESS_SSL_KEY_FILE and so on, as docs/ssl.md of Apache Mesos
// describes them; the older names without LIBPROCESS_ work, too.
//
// It is for the embedded master, agent and command executor. It must never leave a
// certificate unverified unless the operator says so.
package ssl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	prefix    = "LIBPROCESS_SSL_"
	oldPrefix = "SSL_"
)

// FromEnvironment picks the variables out of an environment, given as "NAME=value";
// the result is nil when TLS is not turned on.
func FromEnvironment(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if short, ok := strings.CutPrefix(name, prefix); ok {
			out[prefix+short] = value
		} else if short, ok := strings.CutPrefix(name, oldPrefix); ok && out[prefix+short] == "" {
			out[prefix+short] = value
		}
	}
	// A wrong value is kept: Server and Client say what is wrong with it.
	if v := out[prefix+"ENABLED"]; v == "" || v == "0" || v == "false" {
		return nil
	}
	return out
}

// Enabled tells whether TLS is turned on.
func Enabled(vars map[string]string) bool {
	on, err := truth(vars, "ENABLED", false)
	return on || err != nil
}

// Server is the configuration of a server; nil when TLS is not turned on.
func Server(vars map[string]string) (*tls.Config, error) {
	if !Enabled(vars) {
		return nil, nil //nolint:nilnil // plain HTTP is an answer
	}
	_, enabled := truth(vars, "ENABLED", false)
	downgrade, err := truth(vars, "SUPPORT_DOWNGRADE", false)
	if downgrade {
		err = errors.New(prefix + "SUPPORT_DOWNGRADE: plain HTTP beside TLS on one port is not supported; leave it out")
	}
	client, clientErr := requiresClient(vars)
	pair, pairErr := pairOf(vars, true)
	pool, poolErr := authorities(vars)
	if err := errors.Join(enabled, err, clientErr, pairErr, poolErr); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: pair}
	if client {
		if pool == nil {
			return nil, errors.New(prefix + "REQUIRE_CLIENT_CERT: there is nothing to check certificates with; give " + prefix + "CA_FILE")
		}
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
	}
	return c, nil
}

// Client is the configuration of a client; nil when TLS is not turned on.
func Client(vars map[string]string) (*tls.Config, error) {
	if !Enabled(vars) {
		return nil, nil //nolint:nilnil // plain HTTP is an answer
	}
	_, enabled := truth(vars, "ENABLED", false)
	// libprocess verifies only if it is told to. The connection carries tokens and
	// the secrets of tasks, so here it is the other way round.
	verify, err := truth(vars, "VERIFY_SERVER_CERT", true)
	if vars[prefix+"VERIFY_SERVER_CERT"] == "" {
		verify, err = truth(vars, "VERIFY_CERT", true)
	}
	pair, pairErr := pairOf(vars, false)
	pool, poolErr := authorities(vars)
	if err := errors.Join(enabled, err, pairErr, poolErr); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: pair, RootCAs: pool, InsecureSkipVerify: !verify}, nil
}

// ForExecutors are the variables that an executor needs to connect to a server
// with these. The key is the server's own, and named only where the server demands
// certificates of its clients.
func ForExecutors(vars map[string]string) map[string]string {
	out := map[string]string{}
	client, _ := requiresClient(vars)
	for _, name := range []string{"ENABLED", "CA_FILE", "CA_DIR", "VERIFY_SERVER_CERT", "VERIFY_CERT", "CERT_FILE", "KEY_FILE"} {
		if v := vars[prefix+name]; v != "" && (client || name != "CERT_FILE" && name != "KEY_FILE") {
			out[prefix+name] = v
		}
	}
	return out
}

// truth reads a variable as libprocess reads a bool.
func truth(vars map[string]string, name string, otherwise bool) (bool, error) {
	switch v := vars[prefix+name]; v {
	case "":
		return otherwise, nil
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	default:
		return otherwise, fmt.Errorf("%s%s: %q is not true, false, 1 or 0", prefix, name, v)
	}
}

// requiresClient reads the newer name, and the older one where that is not set.
func requiresClient(vars map[string]string) (bool, error) {
	if vars[prefix+"REQUIRE_CLIENT_CERT"] != "" {
		return truth(vars, "REQUIRE_CLIENT_CERT", false)
	}
	return truth(vars, "REQUIRE_CERT", false)
}

func pairOf(vars map[string]string, needed bool) ([]tls.Certificate, error) {
	cert, key := vars[prefix+"CERT_FILE"], vars[prefix+"KEY_FILE"]
	if cert == "" && key == "" && !needed {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, fmt.Errorf("%sCERT_FILE is %q and %sKEY_FILE is %q: both must be given", prefix, cert, prefix, key)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%sCERT_FILE %s with %sKEY_FILE %s: %w", prefix, cert, prefix, key, err)
	}
	return []tls.Certificate{pair}, nil
}

// authorities is nil, the system's own, when no variable names any.
func authorities(vars map[string]string) (*x509.CertPool, error) {
	var files []string
	if f := vars[prefix+"CA_FILE"]; f != "" {
		files = append(files, f)
	}
	if d := vars[prefix+"CA_DIR"]; d != "" {
		entries, err := os.ReadDir(d)
		if err != nil {
			return nil, fmt.Errorf("%sCA_DIR: %w", prefix, err)
		}
		for _, e := range entries {
			files = append(files, filepath.Join(d, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // crypto/tls takes nil for the system's
	}
	pool := x509.NewCertPool()
	found := false
	for _, f := range files {
		pem, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("%sCA_FILE: %w", prefix, err)
		}
		found = pool.AppendCertsFromPEM(pem) || found
	}
	if !found {
		return nil, fmt.Errorf("%sCA_FILE: no certificate in %s", prefix, strings.Join(files, ", "))
	}
	return pool, nil
}
