// Package testcert makes certificate authorities and certificates, as files, for tests of TLS and for the programs that
// run them.
package testcert

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"os"
	"testing"
	"time"
)

// New makes an authority whose files are deleted when the test ends.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a, err := Make(t.TempDir(), name, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Issue is Sign for tests: the certificate is valid for an hour.
func (a *Authority) Issue(t testing.TB, names []string, change func(*x509.Certificate)) Pair {
	t.Helper()
	p, err := a.Sign(names, time.Hour, change)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Revoke makes a list of revoked certificates, in DER.
func (a *Authority) Revoke(t testing.TB, revoked ...*x509.Certificate) []byte {
	t.Helper()
	a.serial++
	list := &x509.RevocationList{
		Number: big.NewInt(a.serial), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour),
	}
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

// Write writes a PEM file.
func Write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := write(file, kind, der); err != nil {
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
