// Package tlsfiles makes TLS configurations from certificate files, and reads the files again when they change, without
// a restart. The backend's listeners and the agent's connections use it.
//
// There is no goroutine: a handshake a second or more after the last check checks the files again. If files cannot be
// read or do not match, for example while a certificate is replaced and its key is not yet, the earlier ones stay in
// use until a later check. Existing connections are not affected.
package tlsfiles

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options name the files.
type Options struct {
	// Cert and Key are PEM files of the own certificate with its chain and of its key. A server needs them; a client
	// has both or none.
	Cert, Key string
	// CA is a PEM file of the authorities that must have signed the other side's certificate. Default: servers request
	// no certificate, clients trust the system's authorities.
	CA string
	// Required makes a server refuse clients without a certificate; otherwise it refuses only wrong ones. It needs CA.
	Required bool
	// Insecure makes a client accept any certificate.
	Insecure bool
	// Revoked, if set, reports whether an otherwise valid certificate has been revoked.
	Revoked func(cert, issuer *x509.Certificate) bool
	// Name identifies these files in log lines and metrics. Required with a Registerer.
	Name       string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Interval is the greatest age of a check. Default 1 s.
	Interval time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Files are the files with their last valid content.
type Files struct {
	opts   Options
	log    *slog.Logger
	failed prometheus.Counter

	current atomic.Pointer[material]
	looked  atomic.Int64 // Unix nanoseconds of the last check

	mu        sync.Mutex // held during a check; guards complained
	complaint string     // the last failure that was logged, to log it once
}

// material is the files' content.
type material struct {
	sum    [sha256.Size]byte
	cert   *tls.Certificate // nil without
	ca     *x509.CertPool   // nil for the system's
	server *tls.Config
}

// New reads the files for the first time, and fails if they are invalid.
func New(opts Options) (*Files, error) {
	if (opts.Cert == "") != (opts.Key == "") {
		return nil, errors.New("a certificate file and a key file must come together")
	}
	if opts.Required && opts.CA == "" {
		return nil, errors.New("client certificates are required, but no file of authorities is given")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Interval == 0 {
		opts.Interval = time.Second
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	f := &Files{opts: opts, log: opts.Logger.With("component", "tls", "files", opts.Name)}
	f.failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_tls_reload_failures_total", Help: "Looks at changed TLS files that could not be used.",
		ConstLabels: prometheus.Labels{"files": opts.Name},
	})
	m, err := f.read()
	if err != nil {
		return nil, err
	}
	f.current.Store(m)
	f.looked.Store(opts.Now().UnixNano())
	if opts.Registerer != nil {
		expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_tls_certificate_expiry_seconds", Help: "When the certificate in use ends, in Unix time.",
			ConstLabels: prometheus.Labels{"files": opts.Name},
		}, f.expiry)
		opts.Registerer.MustRegister(f.failed, expiry)
	}
	return f, nil
}

func (f *Files) expiry() float64 {
	if c := f.look().cert; c != nil {
		return float64(c.Leaf.NotAfter.Unix())
	}
	return 0
}

// look returns the content, checked at most Interval ago.
func (f *Files) look() *material {
	now := f.opts.Now().UnixNano()
	if now-f.looked.Load() < int64(f.opts.Interval) || !f.mu.TryLock() {
		return f.current.Load()
	}
	defer f.mu.Unlock()
	f.looked.Store(now)
	old := f.current.Load()
	m, err := f.read()
	switch {
	case err != nil:
		if err.Error() != f.complaint {
			f.complaint = err.Error()
			f.failed.Inc()
			f.log.Error("changed TLS files cannot be used, the old ones stay in use", "err", err)
		}
		return old
	case m.sum == old.sum:
		f.complaint = ""
		return old
	}
	f.complaint = ""
	f.current.Store(m)
	f.log.Info("TLS files reloaded")
	return m
}

// Use switches to other files, and reads them at once. If they are invalid, the earlier content stays in use.
func (f *Files) Use(cert, key, ca string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldCert, oldKey, oldCA := f.opts.Cert, f.opts.Key, f.opts.CA
	f.opts.Cert, f.opts.Key, f.opts.CA = cert, key, ca
	m, err := f.read()
	if err != nil {
		f.opts.Cert, f.opts.Key, f.opts.CA = oldCert, oldKey, oldCA
		return err
	}
	f.complaint = ""
	f.current.Store(m)
	return nil
}

// read reads all files, and parses them if they have changed.
func (f *Files) read() (*material, error) {
	var texts [3][]byte
	for i, name := range []string{f.opts.Cert, f.opts.Key, f.opts.CA} {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read TLS file: %w", err)
		}
		texts[i] = text
	}
	m := &material{sum: sha256.Sum256(bytes.Join(texts[:], []byte{0}))}
	if old := f.current.Load(); old != nil && old.sum == m.sum {
		return old, nil
	}
	if f.opts.Cert != "" {
		cert, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return nil, fmt.Errorf("load certificate %s with key %s: %w", f.opts.Cert, f.opts.Key, err)
		}
		if cert.Leaf == nil {
			if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
				return nil, fmt.Errorf("load certificate %s: %w", f.opts.Cert, err)
			}
		}
		m.cert = &cert
	}
	if f.opts.CA != "" {
		m.ca = x509.NewCertPool()
		if !m.ca.AppendCertsFromPEM(texts[2]) {
			return nil, fmt.Errorf("read certificate authorities: %s has none", f.opts.CA)
		}
	}
	m.server = f.serverConfig(m)
	return m, nil
}

// suites are the TLS 1.2 suites with forward secrecy and authenticated encryption; those of 1.3 all have both.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func (f *Files) serverConfig(m *material) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: suites}
	if m.cert != nil {
		c.Certificates = []tls.Certificate{*m.cert}
	}
	if m.ca != nil {
		c.ClientCAs, c.ClientAuth = m.ca, tls.VerifyClientCertIfGiven
		if f.opts.Required {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		c.VerifyConnection = f.checkRevoked
	}
	return c
}

// Server returns the configuration of a listener. Each handshake uses the newest files.
func (f *Files) Server() (*tls.Config, error) {
	if f.opts.Cert == "" {
		return nil, errors.New("a TLS listener needs a certificate")
	}
	c := f.current.Load().server.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.look().server, nil }
	return c, nil
}

// Peer returns the configuration of connections between equals: both sides show their certificate and verify the other's.
// New certificates are used at once. New authorities for connections that this side opens need a restart.
func (f *Files) Peer() (*tls.Config, error) {
	if f.opts.CA == "" || !f.opts.Required {
		return nil, errors.New("peers need authorities that all of them trust")
	}
	c, err := f.Server()
	if err != nil {
		return nil, err
	}
	c.RootCAs = c.ClientCAs
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.look().cert, nil }
	return c, nil
}

// Client returns the configuration of a client, with the files' present content: call it for each connection.
func (f *Files) Client() *tls.Config {
	m := f.look()
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, CipherSuites: suites, RootCAs: m.ca,
		InsecureSkipVerify: f.opts.Insecure, VerifyConnection: f.checkRevoked,
	}
	if m.cert != nil {
		c.Certificates = []tls.Certificate{*m.cert}
	}
	return c
}

// checkRevoked refuses a verified peer whose chains all have a revoked certificate.
func (f *Files) checkRevoked(cs tls.ConnectionState) error {
	if f.opts.Revoked == nil || len(cs.VerifiedChains) == 0 {
		return nil
	}
	for _, chain := range cs.VerifiedChains {
		if !f.revoked(chain) {
			return nil
		}
	}
	return fmt.Errorf("certificate %s has been revoked", cs.PeerCertificates[0].Subject)
}

func (f *Files) revoked(chain []*x509.Certificate) bool {
	for i, cert := range chain[:len(chain)-1] {
		if f.opts.Revoked(cert, chain[i+1]) {
			return true
		}
	}
	return false
}
