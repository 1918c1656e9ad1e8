package backend_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

// TestReloadTLS gives a running backend the names of other files, a new list of revoked certificates, and names that are no
// good.
func TestReloadTLS(t *testing.T) {
	ca, agents := testcert.New(t, "ca"), testcert.New(t, "agents")
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: name} }
	}
	first, second := ca.Issue(t, []string{"127.0.0.1"}, named("first")), ca.Issue(t, []string{"127.0.0.1"}, named("second"))
	lost := agents.Issue(t, []string{"lost"}, nil)
	crl := filepath.Join(t.TempDir(), "crl.pem")
	testcert.Write(t, crl, "X509 CRL", agents.Revoke(t))
	o := testbackend.OptionsIn(t.TempDir())
	o.Admin.Password = password
	o.TLS = backend.TLS{CertFile: first.Cert, KeyFile: first.Key, AgentTrustedCAFile: agents.File, AgentCRLs: []string{crl}}
	b, err := backend.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(t.Context(), o); err == nil {
		t.Error("a backend that does not run was reloaded")
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	serves := func(want string, lostToo bool) {
		t.Helper()
		for _, addr := range []string{b.APIAddr().String(), b.AgentAddr().String()} {
			if _, name, err := get(t, "https://"+addr+"/health", configOf(t, ca, nil)); name != want || err != nil {
				t.Errorf("%s shows the certificate of %q (%v), want %q", addr, name, err, want)
			}
		}
		config := configOf(t, ca, nil)
		config.Certificates = configOf(t, ca, &lost).Certificates
		if _, _, err := get(t, "https://"+b.AgentAddr().String()+"/health", config); (err == nil) != lostToo {
			t.Errorf("the lost certificate is taken: %v, want %v (%v)", err == nil, lostToo, err)
		}
	}
	serves("first", true)

	testcert.Write(t, crl, "X509 CRL", agents.Revoke(t, lost.Leaf))
	next := o
	next.TLS.CertFile, next.TLS.KeyFile = second.Cert, second.Key
	if err := b.Reload(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	serves("second", false)

	refused := func(what, want string, change func(*backend.Options)) {
		t.Helper()
		bad := next
		change(&bad)
		if err := b.Reload(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		serves("second", false)
	}
	refused("a file that is not there", "/nonexistent.pem", func(o *backend.Options) { o.TLS.CertFile = "/nonexistent.pem" })
	refused("an agents' certificate without its key", "--agent-auth-key-file", func(o *backend.Options) { o.TLS.AgentCertFile = first.Cert })
	refused("no TLS", "--agent-auth-crl-urls", func(o *backend.Options) { o.TLS = backend.TLS{} })
	refused("no authorities", "--agent-auth-", func(o *backend.Options) { o.TLS.AgentTrustedCAFile = "" })
	refused("an option that means nothing", "--agent-spread", func(o *backend.Options) { o.Session.Spread = 1 << 50 })
	if err := os.Remove(crl); err != nil {
		t.Fatal(err)
	}
	refused("a list that is gone", "list of revoked certificates", func(*backend.Options) {})
}
