package executor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
)

// ssl returns the name and the value of LIBPROCESS_SSL_<name>, or of the older SSL_<name>.
func (r *envReader) ssl(name string) (variable, value string) {
	for _, variable := range []string{"LIBPROCESS_SSL_" + name, "SSL_" + name} {
		if v := r.get(variable); v != "" {
			return variable, v
		}
	}
	return "LIBPROCESS_SSL_" + name, ""
}

// sslBoolean reads a variable by its newer and its older name.
func (r *envReader) sslBoolean(unset bool, names ...string) bool {
	var all []string
	for _, n := range names {
		all = append(all, "LIBPROCESS_SSL_"+n, "SSL_"+n)
	}
	return r.boolean(unset, all...)
}

// tls reads libprocess's SSL variables, with which the agent's own server is
// configured; see docs/ssl.md of Apache Mesos.
func (r *envReader) tls(endpoint string) *tls.Config {
	if !r.sslBoolean(false, "ENABLED") {
		return nil
	}
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		host = endpoint
	}
	cfg := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	// VERIFY_CERT is the older name. Verification is left out only where the
	// operator says so: the connection carries the token and the tasks' secrets.
	cfg.InsecureSkipVerify = !r.sslBoolean(true, "VERIFY_SERVER_CERT", "VERIFY_CERT")
	// Apache Mesos does not speak TLS 1.3 unless told to; what both ends offer is used
	// here unless told not to.
	one2, one3 := r.sslBoolean(true, "ENABLE_TLS_V1_2"), r.sslBoolean(true, "ENABLE_TLS_V1_3")
	switch {
	case !one2 && !one3:
		r.errs.Add("LIBPROCESS_SSL_ENABLE_TLS_V1_2", "false", "leaves no version of TLS, because TLS 1.3 is turned off as well; older ones are not spoken")
	case !one2:
		cfg.MinVersion = tls.VersionTLS13
	case !one3:
		cfg.MaxVersion = tls.VersionTLS12
	}
	cfg.RootCAs = r.authorities()
	cfg.Certificates = r.certificate()
	if r.byName(host) && !cfg.InsecureSkipVerify {
		verifyByName(cfg, net.DefaultResolver.LookupAddr)
	}
	return cfg
}

// authorities is nil, the system's own, where no variable names any.
func (r *envReader) authorities() *x509.CertPool {
	pool, named, found := x509.NewCertPool(), false, false
	if variable, file := r.ssl("CA_FILE"); file != "" {
		named = true
		pem, err := os.ReadFile(file)
		switch {
		case err != nil:
			r.errs.Add(variable, file, "%v", unwrapPath(err))
		case !pool.AppendCertsFromPEM(pem):
			r.errs.Add(variable, file, "holds no PEM certificate")
		default:
			found = true
		}
	}
	if variable, dir := r.ssl("CA_DIR"); dir != "" {
		named = true
		entries, err := os.ReadDir(dir)
		if err != nil {
			r.errs.Add(variable, dir, "%v", unwrapPath(err))
		}
		inDir := false
		for _, e := range entries {
			// OpenSSL's directories hold each certificate twice, by name and by a link that is
			// its hash, and may hold revocation lists, too: what is no certificate is passed by.
			if pem, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
				inDir = pool.AppendCertsFromPEM(pem) || inDir
			}
		}
		if err == nil && !inDir {
			r.errs.Add(variable, dir, "holds no file with a PEM certificate that can be read")
		}
		found = found || inDir
	}
	if !named || !found {
		return nil
	}
	return pool
}

// certificate is the executor's own, for agents that demand one (REQUIRE_CLIENT_CERT).
func (r *envReader) certificate() []tls.Certificate {
	certVariable, cert := r.ssl("CERT_FILE")
	keyVariable, key := r.ssl("KEY_FILE")
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		r.errs.Add(certVariable, nil, "is not set although %s is; give both or none", keyVariable)
		return nil
	case key == "":
		r.errs.Add(keyVariable, nil, "is not set although %s is; give both or none", certVariable)
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		r.errs.Add(certVariable, cert, "with %s %s: %v", keyVariable, key, err)
		return nil
	}
	return []tls.Certificate{pair}
}

// unwrapPath takes the path off a file error, for texts that name it already.
func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
