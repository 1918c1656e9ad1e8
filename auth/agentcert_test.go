package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestAgentCertificate(t *testing.T) {
	a, _ := seeded(t)
	putUser(t, a, "gone", "P@ssw0rd!", func(u *resource.User) { u.Disabled = true })
	role := &resource.Role{
		Metadata: resource.ObjectMeta{Name: "web", Namespace: "default"},
		Rules:    []resource.Rule{{Verbs: []string{"create"}, Resources: []string{"events"}, ResourceNames: []string{"web1"}}},
	}
	binding := &resource.RoleBinding{
		Metadata: role.Metadata, RoleRef: resource.RoleRef{Type: roleType, Name: "web"},
		Subjects: []resource.Subject{{Type: userType, Name: "web1.example"}},
	}
	if err := errors.Join(config.Put(t.Context(), a.opts.Config, config.Roles, role), config.Put(t.Context(), a.opts.Config, config.RoleBindings, binding)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		subject          pkix.Name
		namespace, agent string
		want             error
	}{
		"group of agents":       {pkix.Name{CommonName: "web1", Organization: []string{"system:agents"}}, "default", "web1", nil},
		"agents' user":          {pkix.Name{CommonName: "agent"}, "default", "web1", nil},
		"administrator's group": {pkix.Name{CommonName: "x", Organization: []string{"a", clusterAdmins}}, "other", "y", nil},
		"own role":              {pkix.Name{CommonName: "web1.example"}, "default", "web1", nil},
		"own role, other name":  {pkix.Name{CommonName: "web1.example"}, "default", "web2", ErrDenied},
		"own role, other ns":    {pkix.Name{CommonName: "web1.example"}, "other", "web1", ErrDenied},
		"nobody":                {pkix.Name{CommonName: "nobody"}, "default", "web1", ErrDenied},
		"disabled":              {pkix.Name{CommonName: "gone", Organization: []string{"system:agents"}}, "default", "web1", ErrCredentials},
		"no name":               {pkix.Name{Organization: []string{"system:agents"}}, "default", "web1", ErrCredentials},
	} {
		id, err := a.AgentCertificate(&x509.Certificate{Subject: tc.subject}, tc.namespace, tc.agent)
		if !errors.Is(err, tc.want) || err == nil && id.User != tc.subject.CommonName {
			t.Errorf("%s: %+v, %v, want %v", name, id, err, tc.want)
		}
	}
}
