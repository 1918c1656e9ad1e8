package send

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// identity identifies TLS settings, including the contents of their files.
type identity [sha256.Size]byte

// tlsConfig returns the TLS configuration of a handler's settings. It reads the files each time: they are a few
// kilobytes, and a renewed certificate counts from the next attempt on. Authorities are public, so their file may be
// anywhere.
func (dirs secretFiles) tlsConfig(t *resource.HandlerTLS) (*tls.Config, identity, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t == nil || *t == (resource.HandlerTLS{}) {
		return c, identity{}, nil
	}
	c.ServerName, c.InsecureSkipVerify = t.ServerName, t.InsecureSkipVerify
	sum := sha256.New()
	add := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		sum.Write(size[:])
		sum.Write(b)
	}
	add([]byte(t.ServerName))
	add(fmt.Append(nil, t.InsecureSkipVerify))
	var pem [3][]byte
	for i, file := range []string{t.CAFile, t.CertFile, t.KeyFile} {
		if file != "" {
			read := dirs.read
			if i == 0 {
				read = func(name string) ([]byte, error) { return readRegular(os.Stat, os.Open, name) }
			}
			b, err := read(file)
			if err != nil {
				return nil, identity{}, fmt.Errorf("read TLS file: %w", err)
			}
			pem[i] = b
		}
		add(pem[i])
	}
	if t.CAFile != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem[0]) {
			return nil, identity{}, fmt.Errorf("read certificate authorities: %s has none", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := tls.X509KeyPair(pem[1], pem[2])
		if err != nil {
			return nil, identity{}, fmt.Errorf("load certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	var id identity
	sum.Sum(id[:0])
	return c, id, nil
}
