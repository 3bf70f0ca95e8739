package executor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strings"
	"time"
)

// lookupLimit bounds a reverse lookup, which is part of a TLS handshake.
const lookupLimit = 3 * time.Second

// verifyByName has cfg accept an agent whose endpoint is an IP address and whose
// certificate names the machine instead, as libprocess's scheme "legacy" does: the
// names are those that a reverse lookup of the address finds, and this machine's own,
// since an executor runs on its agent's machine. All else is verified as always.
func verifyByName(cfg *tls.Config, lookup func(ctx context.Context, address string) ([]string, error)) {
	// crypto/tls has no other way to try several names; VerifyConnection does
	// what it leaves out.
	cfg.InsecureSkipVerify = true
	address := cfg.ServerName
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the agent shows no certificate")
		}
		leaf := state.PeerCertificates[0]
		options := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
		for _, c := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(c)
		}
		if _, err := leaf.Verify(options); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		wrong := leaf.VerifyHostname(address)
		if wrong == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), lookupLimit)
		defer cancel()
		// Without an answer the machine's own name is left.
		names, _ := lookup(ctx, address)
		if own, err := os.Hostname(); err == nil {
			names = append(names, own)
		}
		for _, name := range names {
			if leaf.VerifyHostname(strings.TrimSuffix(name, ".")) == nil {
				return nil
			}
		}
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: wrong}
	}
}

// byName tells whether verifyByName is to be used for a host.
func (r *envReader) byName(host string) bool {
	switch variable, scheme := r.ssl("HOSTNAME_VALIDATION_SCHEME"); scheme {
	case "", "legacy":
		return net.ParseIP(host) != nil
	case "openssl":
	default:
		r.errs.Add(variable, scheme, "is neither legacy nor openssl")
	}
	return false
}
