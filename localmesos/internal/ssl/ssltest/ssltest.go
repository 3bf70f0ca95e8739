// Package ssltest makes certificates for tests.
package ssltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate makes a certificate for 127.0.0.1 that signs itself and is good for an
// hour, and returns libprocess's variables for a server and its clients.
func Certificate(t testing.TB) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agent"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	vars := map[string]string{"LIBPROCESS_SSL_ENABLED": "true", "LIBPROCESS_SSL_CERT_FILE": filepath.Join(dir, "cert"),
		"LIBPROCESS_SSL_KEY_FILE": filepath.Join(dir, "key"), "LIBPROCESS_SSL_CA_FILE": filepath.Join(dir, "cert")}
	for path, block := range map[string]*pem.Block{vars["LIBPROCESS_SSL_CERT_FILE"]: {Type: "CERTIFICATE", Bytes: der},
		vars["LIBPROCESS_SSL_KEY_FILE"]: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return vars
}
