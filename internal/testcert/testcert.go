// Package testcert makes certificate authorities and certificates, as files, for tests of TLS.
package testcert

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
	"strings"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	// File holds its own certificate.
	File string
	// Cert is the same.
	Cert *x509.Certificate

	key    *ecdsa.PrivateKey
	dir    string
	serial int64
}

// New makes an authority whose files are deleted when the test ends.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), serial: 1}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = filepath.Join(a.dir, "ca.pem")
	Write(t, a.File, "CERTIFICATE", der)
	return a
}

// Pair is a certificate and its key, as files.
type Pair struct {
	Cert, Key string
	Leaf      *x509.Certificate
}

// Issue makes a certificate for both ends of connections, with names and addresses, the first of which is its common
// name. change, if not nil, adjusts it.
func (a *Authority) Issue(t testing.TB, names []string, change func(*x509.Certificate)) Pair {
	t.Helper()
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: names[0]},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if change != nil {
		change(template)
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(a.dir, strings.ReplaceAll(template.SerialNumber.String()+"-"+names[0], "/", "_"))
	p := Pair{Cert: base + ".pem", Key: base + "-key.pem"}
	Write(t, p.Cert, "CERTIFICATE", der)
	Write(t, p.Key, "PRIVATE KEY", secret)
	if p.Leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return p
}

// Revoke makes a list of revoked certificates, in DER.
func (a *Authority) Revoke(t testing.TB, revoked ...*x509.Certificate) []byte {
	t.Helper()
	a.serial++
	list := &x509.RevocationList{Number: big.NewInt(a.serial), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, cert := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: cert.SerialNumber, RevocationTime: time.Now().Add(-time.Minute),
		})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.Cert, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Write writes a PEM file.
func Write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Copy replaces a file by another atomically, as a renewal of certificates does.
func Copy(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}
