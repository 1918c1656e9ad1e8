package testcert

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
	"strings"
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

// Pair is a certificate and its key, as files.
type Pair struct {
	Cert, Key string
	Leaf      *x509.Certificate
}

// Make makes an authority with its files in dir. It has been valid for a time, and is for as long.
func Make(dir, name string, valid time.Duration) (*Authority, error) {
	a := &Authority{dir: dir, serial: 1, File: filepath.Join(dir, "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: time.Now().Add(-valid), NotAfter: time.Now().Add(valid),
	}
	var err error
	a.Cert, a.key, err = a.sign(template, a.File)
	return a, err
}

// Sign makes a certificate for both ends of connections, with names and addresses, the first of which is its common
// name. It has been valid for a time, and is for as long. change, if not nil, adjusts it.
func (a *Authority) Sign(names []string, valid time.Duration, change func(*x509.Certificate)) (p Pair, err error) {
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: names[0]},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-valid), NotAfter: time.Now().Add(valid),
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
	base := filepath.Join(a.dir, strings.ReplaceAll(template.SerialNumber.String()+"-"+names[0], "/", "_"))
	p = Pair{Cert: base + ".pem", Key: base + "-key.pem"}
	leaf, key, err := a.sign(template, p.Cert)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key of %s: %w", names[0], err)
	}
	p.Leaf = leaf
	return p, write(p.Key, "PRIVATE KEY", secret)
}

// sign makes a certificate and its key, and writes the certificate. The first one, the authority's own, signs itself.
func (a *Authority) sign(template *x509.Certificate, file string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key of %s: %w", template.Subject.CommonName, err)
	}
	parent, signer := a.Cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("read certificate of %s: %w", template.Subject.CommonName, err)
	}
	return cert, key, write(file, "CERTIFICATE", der)
}

func write(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
