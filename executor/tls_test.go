package executor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificateFiles writes a certificate that signs itself, and its key.
func certificateFiles(t *testing.T, names ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agent"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: names}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// verifies tells whether a configuration verifies certificates, by itself or by its own function.
func verifies(c *tls.Config) bool { return !c.InsecureSkipVerify || c.VerifyConnection != nil }

func TestTLSOfLibprocess(t *testing.T) {
	t.Parallel()
	cert, key := certificateFiles(t)
	hashed := t.TempDir()
	if err := os.Symlink(cert, filepath.Join(hashed, "0a1b2c3d.0")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hashed, "list.crl"), []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  map[string]string
		good func(*tls.Config) bool
	}{
		"off": {map[string]string{"LIBPROCESS_SSL_ENABLED": "false"}, func(c *tls.Config) bool { return c == nil }},
		"verified": {nil, func(c *tls.Config) bool {
			return verifies(c) && c.ServerName == "127.0.0.1" && c.RootCAs == nil
		}},
		"not verified":    {map[string]string{"LIBPROCESS_SSL_VERIFY_SERVER_CERT": "0"}, func(c *tls.Config) bool { return !verifies(c) }},
		"by older name":   {map[string]string{"LIBPROCESS_SSL_VERIFY_CERT": "false"}, func(c *tls.Config) bool { return !verifies(c) }},
		"newer name wins": {map[string]string{"SSL_VERIFY_CERT": "0", "SSL_VERIFY_SERVER_CERT": "1"}, verifies},
		"authority":       {map[string]string{"SSL_CA_FILE": cert}, func(c *tls.Config) bool { return c.RootCAs != nil }},
		"authorities":     {map[string]string{"LIBPROCESS_SSL_CA_DIR": hashed}, func(c *tls.Config) bool { return c.RootCAs != nil }},
		"certificate": {map[string]string{"LIBPROCESS_SSL_CERT_FILE": cert, "LIBPROCESS_SSL_KEY_FILE": key},
			func(c *tls.Config) bool { return len(c.Certificates) == 1 }},
		"by address only": {map[string]string{"LIBPROCESS_SSL_HOSTNAME_VALIDATION_SCHEME": "openssl"},
			func(c *tls.Config) bool { return !c.InsecureSkipVerify && c.VerifyConnection == nil }},
		"only 1.2": {map[string]string{"LIBPROCESS_SSL_ENABLE_TLS_V1_3": "0"}, func(c *tls.Config) bool { return c.MaxVersion == tls.VersionTLS12 }},
		"only 1.3": {map[string]string{"LIBPROCESS_SSL_ENABLE_TLS_V1_2": "0"}, func(c *tls.Config) bool { return c.MinVersion == tls.VersionTLS13 }},
	} {
		env := map[string]string{"SSL_ENABLED": "1"}
		for k, v := range c.env {
			env[k] = v
		}
		got, err := ConfigFromEnv(environment(env))
		if err != nil || !c.good(got.TLS) {
			t.Errorf("%s: TLS %+v, error %v", name, got.TLS, err)
		}
	}
}

func TestTLSThatCannotBeIsTold(t *testing.T) {
	t.Parallel()
	cert, key := certificateFiles(t)
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  map[string]string
		want []string
	}{
		{map[string]string{"LIBPROCESS_SSL_CA_FILE": empty}, []string{empty, "holds no PEM certificate"}},
		{map[string]string{"SSL_CA_FILE": empty + ".missing"}, []string{"SSL_CA_FILE", empty + ".missing", "no such file"}},
		{map[string]string{"LIBPROCESS_SSL_CA_DIR": filepath.Dir(empty)}, []string{filepath.Dir(empty), "holds no file with a PEM certificate"}},
		{map[string]string{"LIBPROCESS_SSL_CA_DIR": empty}, []string{empty, "not a directory"}},
		{map[string]string{"LIBPROCESS_SSL_CERT_FILE": cert}, []string{"LIBPROCESS_SSL_KEY_FILE", "give both or none"}},
		{map[string]string{"LIBPROCESS_SSL_KEY_FILE": key}, []string{"LIBPROCESS_SSL_CERT_FILE", "give both or none"}},
		{map[string]string{"LIBPROCESS_SSL_CERT_FILE": key, "LIBPROCESS_SSL_KEY_FILE": cert}, []string{key, cert}},
		{map[string]string{"LIBPROCESS_SSL_ENABLE_TLS_V1_2": "0", "LIBPROCESS_SSL_ENABLE_TLS_V1_3": "0"}, []string{"no version of TLS"}},
		{map[string]string{"LIBPROCESS_SSL_HOSTNAME_VALIDATION_SCHEME": "none"}, []string{"HOSTNAME_VALIDATION_SCHEME", "legacy nor openssl"}},
		{map[string]string{"LIBPROCESS_SSL_VERIFY_SERVER_CERT": "perhaps"}, []string{"VERIFY_SERVER_CERT", "perhaps"}},
	} {
		c.env["LIBPROCESS_SSL_ENABLED"] = "1"
		_, err := ConfigFromEnv(environment(c.env))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: error %v, want %q in it", c.env, err, want)
			}
		}
	}
}

func TestTLSAgentIsKnownByItsName(t *testing.T) {
	t.Parallel()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	found := func(context.Context, string) ([]string, error) { return []string{"agent-1.example."}, nil }
	failed := func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }
	for name, c := range map[string]struct {
		names   []string
		lookup  func(context.Context, string) ([]string, error)
		trusted bool
		want    string
	}{
		"found by lookup":       {[]string{"agent-1.example"}, found, true, ""},
		"by wildcard":           {[]string{"*.example"}, found, true, ""},
		"this machine":          {[]string{own}, failed, true, ""},
		"another machine":       {[]string{"agent-2.example"}, found, true, "cannot validate certificate for 127.0.0.1"},
		"without an answer":     {[]string{"agent-1.example"}, failed, true, "cannot validate certificate for 127.0.0.1"},
		"authority not trusted": {[]string{"agent-1.example"}, found, false, "signed by unknown authority"},
	} {
		certFile, keyFile := certificateFiles(t, c.names...)
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		cfg := &tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if c.trusted {
			cfg.RootCAs.AddCert(pair.Leaf)
		}
		verifyByName(cfg, c.lookup)
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			if server, err := l.Accept(); err == nil {
				server.SetDeadline(time.Now().Add(10 * time.Second))
				server.Read(make([]byte, 1)) // the handshake, whose result counts at the client
				server.Close()
			}
		}()
		client, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", l.Addr().String(), cfg)
		if err == nil {
			client.Close()
		}
		l.Close()
		<-served
		var unverified *tls.CertificateVerificationError
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.As(err, &unverified)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
