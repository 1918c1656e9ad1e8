package backend

import (
	"cmp"
	"crypto/tls"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
)

// NATS are the settings of NATS servers that are run beside lapwing. Without URLs the backend has a server of its own.
type NATS struct {
	// URLs are those of the servers: nats://HOST:PORT or tls://HOST:PORT, with a user and a password or without.
	URLs []string
	// CredentialsFile is a .creds file of NATS, or has lines with "user: NAME" and "password: SECRET".
	CredentialsFile string
	// CertFile and KeyFile are the certificate that the servers are shown, and TrustedCAFile has the authorities of
	// theirs; "" is the system's.
	CertFile, KeyFile, TrustedCAFile string
	// Prefix begins the names of the streams and subjects. All backends of a system have the same.
	Prefix string
	// Replicas is how many copies each stream has. 0 is as many as there are servers, and 3 at most.
	Replicas int
}

// on reports whether the backend uses NATS servers that are run beside it.
func (n *NATS) on() bool { return len(n.URLs) > 0 }

func (n *NATS) check(bad func(flag, format string, args ...any)) {
	for flag, set := range map[string]bool{
		"nats-credentials-file": n.CredentialsFile != "", "nats-cert-file": n.CertFile != "",
		"nats-key-file": n.KeyFile != "", "nats-trusted-ca-file": n.TrustedCAFile != "",
		"nats-replicas": n.Replicas != 0, "nats-prefix": n.Prefix != "" && n.Prefix != broker.DefaultPrefix,
	} {
		if set && !n.on() {
			bad(flag, "it needs --nats-url, the servers of NATS")
		}
	}
	if !n.on() {
		return
	}
	if (n.CertFile == "") != (n.KeyFile == "") {
		bad("nats-cert-file", "it needs --nats-key-file, and that needs it")
	}
	e := n.external(nil)
	for flag, check := range map[string]func() error{
		"nats-url": e.CheckURLs, "nats-prefix": e.CheckPrefix, "nats-replicas": e.CheckReplicas,
	} {
		if err := check(); err != nil {
			bad(flag, "%w", err)
		}
	}
}

// external returns the broker's part of the settings.
func (n *NATS) external(config *tls.Config) *broker.External {
	return &broker.External{
		URLs: n.URLs, CredentialsFile: n.CredentialsFile, TLS: config, Prefix: n.Prefix, Replicas: n.Replicas,
	}
}

// checkWithNATS refuses what is for members that have servers of their own.
func (c *Cluster) checkWithNATS(bad func(flag, format string, args ...any)) {
	for flag, set := range map[string]bool{
		"peers": len(c.Peers) > 0, "cluster-listen-address": c.ListenAddress != "", "cluster-size": c.Size != 0,
		"cluster-cert-file": c.CertFile != "", "cluster-key-file": c.KeyFile != "",
		"cluster-trusted-ca-file": c.TrustedCAFile != "",
	} {
		if set {
			bad(flag, "it is for backends with servers of their own and does not go together with --nats-url: "+
				"backends with the same --nats-url and --nats-prefix find each other there")
		}
	}
}

// brokerNATS returns the broker's part of the settings, nil without NATS servers.
func (b *Backend) brokerNATS() (*broker.External, error) {
	n := &b.opts.Cluster.NATS
	if !n.on() {
		return nil, nil
	}
	if n.CertFile == "" && n.TrustedCAFile == "" {
		return n.external(nil), nil
	}
	files, err := tlsfiles.New(tlsfiles.Options{
		Cert: n.CertFile, Key: n.KeyFile, CA: n.TrustedCAFile, Name: "nats", Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("read certificates for NATS: %w", err)
	}
	config := files.Client()
	if n.CertFile != "" {
		config.Certificates = nil
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &files.Client().Certificates[0], nil // a new one is used at the next connection
		}
	}
	return n.external(config), nil
}

// completeNATS notes on which NATS servers the member's log is. With others the state would be that of another log.
func (id *identity) completeNATS(c *Cluster) error {
	wrong := func(flag, format string, args ...any) error {
		return &optionerr.Error{Flag: flag, Err: fmt.Errorf(format, args...)}
	}
	prefix := ""
	if c.NATS.on() {
		prefix = cmp.Or(c.NATS.Prefix, broker.DefaultPrefix)
	}
	switch used := !id.Initialised.IsZero() || !id.Seeded.IsZero(); {
	case id.NATS == prefix:
	case prefix == "":
		return wrong("nats-url", "the state directory is of member %s, whose log is on NATS servers: name them", id.Member)
	case id.NATS != "":
		return wrong("nats-prefix", "the state directory is of member %s of the system %q: start with an empty directory, "+
			"or with that prefix", id.Member, id.NATS)
	case id.Member != "":
		return wrong("nats-url", "the state directory is of member %s of a cluster with servers of its own: "+
			"start with an empty directory", id.Member)
	case used:
		return wrong("nats-url", "the state directory is of a backend that was alone: start with an empty directory")
	}
	id.NATS = prefix
	return nil
}
