package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"

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

func (t *TLS) validate() error {
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""), (t.AgentCertFile == "") != (t.AgentKeyFile == ""):
		return errors.New("backend: a certificate file and a key file must come together")
	case t.CertFile == "" && t.ClientCertAuth:
		return errors.New("backend: without a certificate file there is no TLS that clients could show a certificate in")
	case t.ClientCertAuth && t.TrustedCAFile == "":
		return errors.New("backend: client certificates are wanted, but no authorities to trust are given")
	case t.AgentTrustedCAFile == "" && (t.AgentCertAuth || t.AgentNameAuth || len(t.AgentCRLs) > 0):
		return errors.New("backend: agent certificates are wanted, but no authorities to trust for agents are given")
	case t.AgentTrustedCAFile != "" && t.CertFile == "" && t.AgentCertFile == "":
		return errors.New("backend: without a certificate file there is no TLS that agents could show a certificate in")
	}
	return nil
}

// listenerTLS are the configurations of the two listeners; nil for those that speak plain.
func (b *Backend) listenerTLS(ctx context.Context) (api, agents *tls.Config, err error) {
	t := &b.opts.TLS
	if t.CertFile != "" {
		o := tlsfiles.Options{Cert: t.CertFile, Key: t.KeyFile, Name: "api"}
		if t.ClientCertAuth {
			o.CA, o.Required = t.TrustedCAFile, true
		}
		if api, err = b.tlsFrom(o); err != nil {
			return nil, nil, err
		}
	}
	o := tlsfiles.Options{Cert: t.AgentCertFile, Key: t.AgentKeyFile, CA: t.AgentTrustedCAFile, Name: "agents"}
	if o.Cert == "" {
		o.Cert, o.Key = t.CertFile, t.KeyFile
	}
	if o.Cert == "" {
		return api, nil, nil
	}
	if len(t.AgentCRLs) > 0 {
		revoked, err := crl.New(crl.Options{Sources: t.AgentCRLs, Logger: b.log, Registerer: b.opts.Registry})
		if err != nil {
			return nil, nil, err
		}
		if err := start(ctx, b, "lists of revoked certificates", revoked); err != nil {
			return nil, nil, err
		}
		o.Revoked = revoked.Revoked
	}
	agents, err = b.tlsFrom(o)
	return api, agents, err
}

func (b *Backend) tlsFrom(o tlsfiles.Options) (*tls.Config, error) {
	o.Logger, o.Registerer = b.log, b.opts.Registry
	files, err := tlsfiles.New(o)
	if err != nil {
		return nil, err
	}
	return files.Server()
}

// healthOnly passes on what agents' load balancers ask for. All else of the API has its own listener, with its own demands.
func healthOnly(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" || r.URL.Path == "/ready" {
			api.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}
