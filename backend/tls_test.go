package backend_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/wire"
)

const password = "P@ssw0rd!"

// startTLS runs a backend on 127.0.0.1 until the test ends.
func startTLS(t *testing.T, o backend.TLS) *backend.Backend {
	t.Helper()
	opts := testbackend.OptionsIn(t.TempDir())
	opts.Admin.Password, opts.TLS = password, o
	b, err := backend.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// configOf is a client's, with a certificate unless it is nil.
func configOf(t testing.TB, ca *testcert.Authority, pair *testcert.Pair) *tls.Config {
	t.Helper()
	o := tlsfiles.Options{CA: ca.File}
	if pair != nil {
		o.Cert, o.Key = pair.Cert, pair.Key
	}
	f, err := tlsfiles.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f.Client()
}

// get asks for a path and returns the answer's status and whose certificate the server has.
func get(t testing.TB, url string, config *tls.Config) (status int, name string, err error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.TLS.PeerCertificates[0].Subject.CommonName, nil
}

// TestAPITLS: the API over TLS, a certificate that is replaced, and client certificates that are necessary.
func TestAPITLS(t *testing.T) {
	ca, stranger := testcert.New(t, "ca"), testcert.New(t, "stranger")
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: name} }
	}
	first, second := ca.Issue(t, []string{"127.0.0.1"}, named("first")), ca.Issue(t, []string{"127.0.0.1"}, named("second"))
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	testcert.Copy(t, first.Cert, cert)
	testcert.Copy(t, first.Key, key)
	b := startTLS(t, backend.TLS{CertFile: cert, KeyFile: key, TrustedCAFile: ca.File, ClientCertAuth: true})
	api, agents := "https://"+b.APIAddr().String(), "https://"+b.AgentAddr().String()
	person, foreign := ca.Issue(t, []string{"person"}, nil), stranger.Issue(t, []string{"person"}, nil)

	if _, _, err := get(t, api+"/health", configOf(t, ca, nil)); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	config := configOf(t, ca, nil)
	pair, err := tls.LoadX509KeyPair(foreign.Cert, foreign.Key)
	if err != nil {
		t.Fatal(err)
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	if _, _, err := get(t, api+"/health", config); err == nil {
		t.Error("a stranger's certificate was taken")
	}
	if status, name, err := get(t, api+"/health", configOf(t, ca, &person)); status != http.StatusOK || name != "first" || err != nil {
		t.Errorf("with a certificate: %d, %s, %v", status, name, err)
	}
	// A certificate is no sign-in.
	if status, _, err := get(t, api+"/api/core/v2/namespaces", configOf(t, ca, &person)); status != http.StatusUnauthorized {
		t.Errorf("with nothing but a certificate: %d, %v", status, err)
	}
	c, err := client.New(client.Options{URL: api, Username: "admin", Password: password, TLSConfig: configOf(t, ca, &person)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Login(t.Context()); err != nil {
		t.Errorf("sign in: %v", err)
	}
	// The listener for agents asks for none, and is no way around that.
	for path, want := range map[string]int{"/health": 200, "/ready": 200, "/api/core/v2/namespaces": 404, "/auth": 404, "/metrics": 404, "/": 401} {
		if status, _, err := get(t, agents+path, configOf(t, ca, nil)); status != want {
			t.Errorf("%s at the agents' listener: %d, %v, want %d", path, status, err, want)
		}
	}

	testcert.Copy(t, second.Cert, cert)
	testcert.Copy(t, second.Key, key)
	deadline := time.Now().Add(time.Minute)
	for at, name := range map[string]string{"api": api, "agents": agents} {
		for {
			status, got, err := get(t, name+"/health", configOf(t, ca, &person))
			if err == nil && status == http.StatusOK && got == "second" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the new certificate is not shown to %s: %d, %s, %v", at, status, got, err)
			}
			<-time.After(50 * time.Millisecond) // the files are looked at once a second
		}
	}
}

// dialAgent makes an agent's handshake and returns its status.
func dialAgent(b *backend.Backend, config *tls.Config, name, user, password string) (int, error) {
	h := http.Header{
		wire.HeaderAgentName: {name}, wire.HeaderNamespace: {"default"}, wire.HeaderSubscriptions: {"linux"},
		"Accept": {wire.ContentType(wire.Protobuf)},
	}
	if user != "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	conn, _, err := wire.Dial(context.Background(), "wss://"+b.AgentAddr().String(), h, wire.DialOptions{TLSConfig: config})
	var refused *wire.HandshakeError
	if errors.As(err, &refused) {
		return refused.Status, nil
	}
	if err != nil {
		return 0, err
	}
	_ = conn.Close(wire.CloseGoingAway, "bye")
	return http.StatusSwitchingProtocols, nil
}

// TestAgentTLS: who gets in with which certificate or password.
func TestAgentTLS(t *testing.T) {
	ca, agents := testcert.New(t, "ca"), testcert.New(t, "agents")
	server, other := ca.Issue(t, []string{"127.0.0.1"}, nil), ca.Issue(t, []string{"127.0.0.1"}, nil)
	issue := func(a *testcert.Authority, name string, organizations ...string) *testcert.Pair {
		p := a.Issue(t, []string{name}, func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: name, Organization: organizations}
			c.DNSNames = []string{name + ".example"}
		})
		return &p
	}
	web1, lost, nobody := issue(agents, "web1", "system:agents"), issue(agents, "lost", "system:agents"), issue(agents, "nobody")
	shared, foreign := issue(agents, "agent"), issue(ca, "web1", "system:agents")
	crl := filepath.Join(t.TempDir(), "crl.pem")
	testcert.Write(t, crl, "X509 CRL", agents.Revoke(t, lost.Leaf))
	open := backend.TLS{
		CertFile: other.Cert, KeyFile: other.Key, AgentCertFile: server.Cert, AgentKeyFile: server.Key,
		AgentTrustedCAFile: agents.File, AgentCRLs: []string{crl},
	}
	strict := open
	strict.AgentCertAuth, strict.AgentNameAuth = true, true
	const in, failed = http.StatusSwitchingProtocols, 0
	type try struct {
		what           string
		cert           *testcert.Pair
		name, user, pw string
		open, strict   int
	}
	tries := []try{
		{"password", nil, "web1", "agent", password, in, 401},
		{"wrong password", nil, "web1", "agent", "x", 401, 401},
		{"neither", nil, "web1", "", "", 401, 401},
		{"certificate", web1, "web1", "", "", in, in},
		{"certificate, other name of it", web1, "web1.example", "", "", in, in},
		{"certificate, name of another", web1, "web2", "", "", in, 403},
		{"certificate and password", web1, "web1", "agent", password, in, in},
		{"certificate and wrong password", web1, "web1", "agent", "x", 401, 401},
		{"certificate that all share", shared, "web1", "", "", in, 403},
		{"certificate without rights", nobody, "nobody", "", "", 403, 403},
		{"certificate of another authority", foreign, "web1", "", "", 401, 401}, // it is not even sent
		{"revoked certificate", lost, "lost", "", "", failed, failed},
		{"revoked certificate and password", lost, "lost", "agent", password, failed, failed},
	}
	// To match names is to require certificates, or an agent without one could take any name.
	names := strict
	names.AgentCertAuth = false
	for mode, o := range map[string]backend.TLS{"open": open, "strict": strict, "names": names} {
		t.Run(mode, func(t *testing.T) {
			b := startTLS(t, o)
			for _, tc := range tries {
				want := tc.strict
				if mode == "open" {
					want = tc.open
				}
				got, err := dialAgent(b, configOf(t, ca, tc.cert), tc.name, tc.user, tc.pw)
				if got != want || (err != nil) != (want == failed) {
					t.Errorf("%s: %d, %v, want %d", tc.what, got, err, want)
				}
			}
		})
	}

	t.Run("agent", func(t *testing.T) {
		b := startTLS(t, strict)
		files, err := tlsfiles.New(tlsfiles.Options{CA: ca.File, Cert: web1.Cert, Key: web1.Key})
		if err != nil {
			t.Fatal(err)
		}
		a, err := agent.New(agent.Options{
			Name: "web1", BackendURLs: []string{"wss://" + b.AgentAddr().String()}, Subscriptions: []string{"linux"}, TLS: files.Client,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Stop() }()
		c, err := client.New(client.Options{
			URL: "https://" + b.APIAddr().String(), Username: "admin", Password: password, TLSConfig: configOf(t, ca, nil),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		deadline := time.Now().Add(time.Minute)
		for {
			e, err := client.Get(t.Context(), c, client.Entities, "default", "web1")
			if err == nil && e.LastSeen != 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the agent's keepalive did not arrive: %v", err)
			}
			<-time.After(20 * time.Millisecond) // between looks at what must come
		}
	})
}

func TestTLSOptions(t *testing.T) {
	for want, o := range map[string]backend.TLS{
		"--cert-file: a certificate and --key-file must":            {CertFile: "x"},
		"--client-cert-auth: clients can only":                      {TrustedCAFile: "x", ClientCertAuth: true},
		"--client-cert-auth: it needs --trusted-ca-file":            {CertFile: "x", KeyFile: "x", ClientCertAuth: true},
		"--agent-auth-required: it needs":                           {CertFile: "x", KeyFile: "x", AgentCertAuth: true},
		"--agent-auth-trusted-ca-file: agents can only":             {AgentTrustedCAFile: "x"},
		"--agent-auth-cert-file: a certificate and --agent-auth-ke": {AgentCertFile: "x", AgentTrustedCAFile: "x"},
	} {
		opts := testbackend.OptionsIn(t.TempDir())
		opts.TLS = o
		if _, err := backend.New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
