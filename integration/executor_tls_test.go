package integration

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

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent"
)

// certificateFor makes a certificate for 127.0.0.1 that signs itself and is good for an hour, in files cert.pem and key.pem of
// a directory of its own.
func certificateFor(t *testing.T) (dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sslVariables are libprocess's, for a server with the certificate of a directory.
func sslVariables(dir string, more ...string) map[string]string {
	vars := map[string]string{
		"LIBPROCESS_SSL_ENABLED":   "true",
		"LIBPROCESS_SSL_CERT_FILE": filepath.Join(dir, "cert.pem"), "LIBPROCESS_SSL_KEY_FILE": filepath.Join(dir, "key.pem"),
	}
	for i := 0; i+1 < len(more); i += 2 {
		vars["LIBPROCESS_SSL_"+more[i]] = more[i+1]
	}
	return vars
}

func TestExecutorOverTLS(t *testing.T) {
	t.Parallel()
	dir := certificateFor(t)
	authorities := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "cert.pem"), filepath.Join(authorities, "0a1b2c3d.0")); err != nil {
		t.Fatal(err)
	}
	for name, vars := range map[string]map[string]string{
		"authority in a file":         sslVariables(dir, "CA_FILE", filepath.Join(dir, "cert.pem")),
		"authority in a directory":    sslVariables(dir, "CA_DIR", authorities),
		"not verified":                sslVariables(dir, "VERIFY_SERVER_CERT", "false"),
		"agent demands a certificate": sslVariables(dir, "CA_FILE", filepath.Join(dir, "cert.pem"), "REQUIRE_CLIENT_CERT", "true"),
		"certificate and unix socket": sslVariables(dir, "CA_FILE", filepath.Join(dir, "cert.pem"), "VERIFY_CERT", "true"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags, _ := withTokens(t)
			c := startCluster(t, clusterOptions{checkpoint: true, agent: func(f *agent.Flags) {
				flags(f)
				f.SSL, f.HTTPExecutorDomainSockets = vars, name == "certificate and unix socket"
			}})
			g := c.launch(proc(c, "a", "exec sleep 1000"))
			c.waitState(g, "a", mesos.TASK_RUNNING)
			c.agent.Kill()
			c.startAgent()
			c.waitLog(g, "again=true")
			c.kill(g, "a")
			c.waitState(g, "a", mesos.TASK_KILLED)
			c.waitExecutorGone(g)
			c.nothingLeft()
		})
	}
}

func TestExecutorDoesNotTrustEveryAgent(t *testing.T) {
	t.Parallel()
	dir := certificateFor(t)
	c := startCluster(t, clusterOptions{noDaemon: true, agent: func(f *agent.Flags) {
		f.SSL = sslVariables(dir, "CA_FILE", filepath.Join(certificateFor(t), "cert.pem"))
	}})
	g := c.launch(proc(c, "a", "exec sleep 1000"))
	c.waitLog(g, "name the agent's authority in LIBPROCESS_SSL_CA_FILE")
	if s := c.states(g, "a"); s != "" {
		t.Errorf("states %s of a task whose executor must not subscribe", s)
	}
}
