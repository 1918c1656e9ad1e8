package backend

import (
	"crypto/tls"

	"github.com/lapwing-monitoring/lapwing/internal/crl"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
)

// TLS is how the listeners prove who they are, and what they want of clients. All files are PEM, and are taken anew when they
// change.
type TLS struct {
	// CertFile and KeyFile, together, make both listeners speak TLS.
	CertFile, KeyFile string
	// ClientCertAuth refuses API clients without a certificate of the authorities in TrustedCAFile, which is not used
	// otherwise: browsers that are asked for a certificate ask people.
	ClientCertAuth bool
	TrustedCAFile  string
	// AgentCertFile and AgentKeyFile replace CertFile and KeyFile for the listener of agents.
	AgentCertFile, AgentKeyFile string
	// AgentTrustedCAFile has the authorities of agents' certificates, with which agents sign in without a password.
	AgentTrustedCAFile string
	// AgentCRLs are URLs or files with lists of revoked certificates of agents.
	AgentCRLs []string
	// AgentCertAuth refuses agents without a certificate, and AgentNameAuth those whose name is not in theirs.
	AgentCertAuth, AgentNameAuth bool
}

func (t *TLS) check(bad func(flag, format string, args ...any)) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		bad("cert-file", "a certificate and --key-file must come together")
	}
	if (t.AgentCertFile == "") != (t.AgentKeyFile == "") {
		bad("agent-auth-cert-file", "a certificate and --agent-auth-key-file must come together")
	}
	switch {
	case t.ClientCertAuth && t.CertFile == "":
		bad("client-cert-auth", "clients can only show a certificate over TLS: set --cert-file and --key-file")
	case t.ClientCertAuth && t.TrustedCAFile == "":
		bad("client-cert-auth", "it needs --trusted-ca-file, the authorities to trust")
	}
	if t.AgentTrustedCAFile == "" {
		for flag, used := range map[string]bool{
			"agent-auth-required": t.AgentCertAuth, "agent-auth-match-name": t.AgentNameAuth, "agent-auth-crl-urls": len(t.AgentCRLs) > 0,
		} {
			if used {
				bad(flag, "it needs --agent-auth-trusted-ca-file, the authorities to trust")
			}
		}
	} else if t.CertFile == "" && t.AgentCertFile == "" {
		bad("agent-auth-trusted-ca-file", "agents can only show a certificate over TLS: set --cert-file and --key-file")
	}
}

// listenerTLS are the configurations of the two listeners and what they are read from; nil for listeners that speak plain.
type listenerTLS struct {
	api, agents          *tls.Config
	apiFiles, agentFiles *tlsfiles.Files
	revoked              *crl.Lists // nil without lists
}

func (b *Backend) listenerTLS() (l listenerTLS, err error) {
	t := &b.opts.TLS
	if t.CertFile != "" {
		if l.apiFiles, l.api, err = b.tlsFrom(apiOptions(t)); err != nil {
			return l, err
		}
	}
	o := agentOptions(t)
	if o.Cert == "" {
		return l, nil
	}
	if len(t.AgentCRLs) > 0 {
		l.revoked, err = crl.New(crl.Options{Sources: t.AgentCRLs, Logger: b.log, Registerer: b.opts.Registry})
		if err != nil {
			return l, err
		}
		o.Revoked = l.revoked.Revoked
	}
	l.agentFiles, l.agents, err = b.tlsFrom(o)
	return l, err
}

// apiOptions and agentOptions are the files of the two listeners. Without a certificate the listener speaks plain.
func apiOptions(t *TLS) tlsfiles.Options {
	o := tlsfiles.Options{Cert: t.CertFile, Key: t.KeyFile, Name: "api"}
	if t.ClientCertAuth {
		o.CA, o.Required = t.TrustedCAFile, true
	}
	return o
}

func agentOptions(t *TLS) tlsfiles.Options {
	o := tlsfiles.Options{Cert: t.AgentCertFile, Key: t.AgentKeyFile, CA: t.AgentTrustedCAFile, Name: "agents"}
	if o.Cert == "" {
		o.Cert, o.Key = t.CertFile, t.KeyFile
	}
	return o
}

func (b *Backend) tlsFrom(o tlsfiles.Options) (*tlsfiles.Files, *tls.Config, error) {
	o.Logger, o.Registerer = b.log, b.opts.Registry
	files, err := tlsfiles.New(o)
	if err != nil {
		return nil, nil, err
	}
	config, err := files.Server()
	return files, config, err
}
