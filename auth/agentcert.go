package auth

import (
	"crypto/x509"
	"slices"

	"github.com/lapwing-monitoring/lapwing/config"
)

// AgentCertificate signs in an agent by its certificate, whose chain the caller has verified. The common name is the
// user, and the organizations are groups. If lapwing has that user, its groups count too, and it must not be disabled.
// It fails with ErrCredentials or ErrDenied.
func (a *Auth) AgentCertificate(cert *x509.Certificate, namespace, agent string) (*Identity, error) {
	id := &Identity{User: cert.Subject.CommonName, Groups: slices.Clone(cert.Subject.Organization)}
	if id.User == "" {
		return nil, ErrCredentials
	}
	if u, ok := config.Get(a.opts.Config.Snapshot(), config.Users, "", id.User); ok {
		if u.Disabled {
			return nil, ErrCredentials
		}
		id.Groups = append(id.Groups, u.Groups...)
	}
	id.Groups = withGroup(id.Groups, agentsGroup)
	if !a.Authorize(id, Attributes{Verb: "create", Resource: "events", Name: agent, Namespace: namespace}) {
		return nil, ErrDenied
	}
	return id, nil
}
