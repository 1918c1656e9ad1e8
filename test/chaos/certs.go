//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates are the files with which members trust each other. They are valid for years around the present, because
// clocks are set wrong.
type certificates struct{ dir string }

func (c *certificates) caFile() string        { return filepath.Join(c.dir, "ca.pem") }
func (c *certificates) certFile(i int) string { return filepath.Join(c.dir, memberName(i)+".pem") }
func (c *certificates) keyFile(i int) string  { return filepath.Join(c.dir, memberName(i)+"-key.pem") }

// newCertificates makes an authority, and a certificate for each member.
func newCertificates(dir string, members int) (*certificates, error) {
	c := &certificates{dir: dir}
	ca, caKey, err := c.issue(c.caFile(), "", template(1, "chaos"), nil, nil)
	if err != nil {
		return nil, err
	}
	for i := range members {
		t := template(int64(2+i), memberName(i))
		t.IPAddresses = []net.IP{net.ParseIP(memberAddr(i))}
		if _, _, err := c.issue(c.certFile(i), c.keyFile(i), t, ca, caKey); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func template(serial int64, name string) *x509.Certificate {
	const year = 365 * 24 * time.Hour
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-year), NotAfter: time.Now().Add(year),
		IsCA: serial == 1, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// issue writes a certificate and its key. Without a parent it signs itself, and its key is not written.
func (c *certificates) issue(
	certFile, keyFile string, t, parent *x509.Certificate, parentKey *ecdsa.PrivateKey,
) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, parentKey = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate of %s: %w", t.Subject.CommonName, err)
	}
	if err := writePEM(certFile, "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	if keyFile != "" {
		b, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, nil, err
		}
		if err := writePEM(keyFile, "PRIVATE KEY", b); err != nil {
			return nil, nil, err
		}
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
