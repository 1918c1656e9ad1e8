package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

// shake makes a handshake over a connection, and returns both ends' views of it.
func shake(t testing.TB, server, client *tls.Config) (atServer, atClient tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	deadline := time.Now().Add(time.Minute)
	_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline)
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if serverErr = s.Handshake(); serverErr == nil {
			_, serverErr = s.Write([]byte("x"))
		}
		if serverErr != nil {
			_ = a.Close()
		}
	}()
	// In TLS 1.3 a server refuses the client's certificate after the client's handshake.
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = io.ReadFull(c, make([]byte, 1))
	}
	if clientErr != nil {
		_ = b.Close()
	}
	<-done
	return s.ConnectionState(), c.ConnectionState(), serverErr, clientErr
}

// clock is a clock that tests set.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

func files(t testing.TB, o Options) (*Files, *clock) {
	t.Helper()
	c := &clock{time.Now()}
	o.Now = c.time
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

func serverOf(t testing.TB, f *Files) *tls.Config {
	t.Helper()
	c, err := f.Server()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func trusting(ca *testcert.Authority) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

func TestReload(t *testing.T) {
	ca := testcert.New(t, "ca")
	first, second := ca.Issue(t, []string{"localhost", "first"}, nil), ca.Issue(t, []string{"localhost", "second"}, nil)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testcert.Copy(t, first.Cert, cert)
	testcert.Copy(t, first.Key, key)
	registry := prometheus.NewRegistry()
	f, c := files(t, Options{Cert: cert, Key: key, Name: "api", Registerer: registry})
	server := serverOf(t, f)
	expect := func(want testcert.Pair, when string) {
		t.Helper()
		_, got, err, _ := shake(t, server, trusting(ca))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if !got.PeerCertificates[0].Equal(want.Leaf) {
			t.Errorf("%s: the certificate is that of %v", when, got.PeerCertificates[0].DNSNames)
		}
	}
	expect(first, "at first")
	testcert.Copy(t, second.Cert, cert) // its key is not there yet
	expect(first, "within a second of the last look")
	c.now = c.now.Add(time.Second)
	expect(first, "with a certificate that has another key")
	c.now = c.now.Add(time.Second)
	expect(first, "and still")
	if n := metric(t, registry, "lapwing_tls_reload_failures_total"); n != 1 {
		t.Errorf("%v failures are counted for two looks at the same files, want 1", n)
	}
	testcert.Copy(t, second.Key, key)
	c.now = c.now.Add(time.Second)
	expect(second, "with both new")
	if got, want := metric(t, registry, "lapwing_tls_certificate_expiry_seconds"), float64(second.Leaf.NotAfter.Unix()); got != want {
		t.Errorf("the certificate is said to end at %v, want %v", got, want)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Second)
	expect(second, "without a file")
	if err := os.WriteFile(cert, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Second)
	expect(second, "with a file of something else")
	testcert.Copy(t, first.Cert, cert)
	testcert.Copy(t, first.Key, key)
	c.now = c.now.Add(time.Second)
	expect(first, "and back")
	if n := metric(t, registry, "lapwing_tls_reload_failures_total"); n != 3 {
		t.Errorf("%v failures are counted, want 3", n)
	}
}

func metric(t testing.TB, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			if f.GetType() == dto.MetricType_COUNTER {
				return m.GetCounter().GetValue()
			}
			return m.GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestClientCertificates: which clients are accepted, by the server's options.
func TestClientCertificates(t *testing.T) {
	ca, stranger := testcert.New(t, "ca"), testcert.New(t, "stranger")
	server := ca.Issue(t, []string{"localhost"}, nil)
	agent := ca.Issue(t, []string{"agent"}, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "agent"} })
	expired := ca.Issue(t, []string{"agent"}, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	forServers := ca.Issue(t, []string{"agent"}, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	foreign := stranger.Issue(t, []string{"agent"}, nil)
	plain := Options{Cert: server.Cert, Key: server.Key}
	given, required, revoking := plain, plain, plain
	given.CA, required.CA, revoking.CA = ca.File, ca.File, ca.File
	required.Required = true
	revoking.Revoked = func(cert, issuer *x509.Certificate) bool { return cert.Equal(agent.Leaf) && issuer.Equal(ca.Cert) }
	for name, tc := range map[string]struct {
		server Options
		client *testcert.Pair
		want   string // what the error has; "" for none
		who    string // common name that the server knows
	}{
		"none wanted, none given":     {plain, nil, "", ""},
		"none wanted, one given":      {plain, &agent, "", ""},
		"wanted, none given":          {given, nil, "", ""},
		"wanted, given":               {given, &agent, "", "agent"},
		"wanted, a stranger's":        {given, &foreign, "unknown authority", ""},
		"wanted, expired":             {given, &expired, "expired", ""},
		"wanted, for servers only":    {given, &forServers, "incompatible key usage", ""},
		"required, none given":        {required, nil, "didn't provide a certificate", ""},
		"required, given":             {required, &agent, "", "agent"},
		"required, a stranger's":      {required, &foreign, "unknown authority", ""},
		"wanted, revoked":             {revoking, &agent, "revoked", ""},
		"wanted, not the one revoked": {revoking, &server, "", "localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := files(t, tc.server)
			client := trusting(ca)
			if tc.client != nil {
				pair, err := tls.LoadX509KeyPair(tc.client.Cert, tc.client.Key)
				if err != nil {
					t.Fatal(err)
				}
				// Send the certificate even if it does not match the server's request, which our client would not.
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
			got, _, err, _ := shake(t, serverOf(t, f), client)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			who := ""
			if len(got.VerifiedChains) > 0 {
				who = got.VerifiedChains[0][0].Subject.CommonName
			}
			if who != tc.who {
				t.Errorf("the server knows %q, want %q", who, tc.who)
			}
		})
	}
}

// TestAuthorities: clients and servers take new authorities for new connections.
func TestAuthorities(t *testing.T) {
	old, next := testcert.New(t, "old"), testcert.New(t, "next")
	server, agent := next.Issue(t, []string{"localhost"}, nil), old.Issue(t, []string{"agent"}, nil)
	file := filepath.Join(t.TempDir(), "ca.pem")
	testcert.Copy(t, old.File, file)
	atServer, serverClock := files(t, Options{Cert: server.Cert, Key: server.Key, CA: file})
	atClient, clientClock := files(t, Options{Cert: agent.Cert, Key: agent.Key, CA: file})
	config := serverOf(t, atServer)
	try := func(name string) (serverErr, clientErr error) {
		t.Helper()
		client := atClient.Client()
		client.ServerName = name
		_, _, serverErr, clientErr = shake(t, config, client)
		return serverErr, clientErr
	}
	var unknown x509.UnknownAuthorityError
	if _, err := try("localhost"); !errors.As(err, &unknown) {
		t.Errorf("the client's authorities do not include the server's: %v", err)
	}
	testcert.Copy(t, next.File, file)
	clientClock.now = clientClock.now.Add(time.Second)
	if serverErr, clientErr := try("localhost"); serverErr != nil || clientErr != nil {
		t.Errorf("the server has not looked yet: %v, %v", serverErr, clientErr)
	}
	var wrong x509.HostnameError
	for _, name := range []string{"elsewhere", "127.0.0.1"} {
		if _, err := try(name); !errors.As(err, &wrong) {
			t.Errorf("as %s: %v", name, err)
		}
	}
	serverClock.now = serverClock.now.Add(time.Second)
	client := atClient.Client()
	client.ServerName = "localhost"
	// With the new authorities in the request, the client has no matching certificate to send.
	if state, _, err, _ := shake(t, config, client); err != nil || len(state.VerifiedChains) != 0 {
		t.Errorf("the server's authorities no longer include the client's: %v, %d chains", err, len(state.VerifiedChains))
	}
}

func TestInsecureClient(t *testing.T) {
	server := testcert.New(t, "ca").Issue(t, []string{"localhost"}, nil)
	f, _ := files(t, Options{Cert: server.Cert, Key: server.Key})
	client, _ := files(t, Options{Insecure: true})
	if _, _, serverErr, clientErr := shake(t, serverOf(t, f), client.Client()); serverErr != nil || clientErr != nil {
		t.Error(serverErr, clientErr)
	}
}

// TestOldTLS: outdated versions are refused.
func TestOldTLS(t *testing.T) {
	ca := testcert.New(t, "ca")
	server := ca.Issue(t, []string{"localhost"}, nil)
	f, _ := files(t, Options{Cert: server.Cert, Key: server.Key})
	old := trusting(ca)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, err, _ := shake(t, serverOf(t, f), old); err == nil {
		t.Error("TLS 1.1 was taken")
	}
	cbc := trusting(ca)
	cbc.MaxVersion, cbc.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
	if _, _, err, _ := shake(t, serverOf(t, f), cbc); err == nil {
		t.Error("a suite without authenticated encryption was taken")
	}
	good := trusting(ca)
	good.MaxVersion = tls.VersionTLS12
	if state, _, err, _ := shake(t, serverOf(t, f), good); err != nil || state.Version != tls.VersionTLS12 {
		t.Errorf("TLS 1.2: %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	ca := testcert.New(t, "ca")
	pair, other := ca.Issue(t, []string{"a"}, nil), ca.Issue(t, []string{"b"}, nil)
	for want, o := range map[string]Options{
		"must come together":     {Cert: pair.Cert},
		"no file of authorities": {Cert: pair.Cert, Key: pair.Key, Required: true},
		"does not match":         {Cert: pair.Cert, Key: other.Key},
		"no such file":           {CA: "/nowhere/ca.pem"},
		"has none":               {CA: pair.Key},
		"failed to find":         {Cert: pair.Key, Key: pair.Key},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	f, _ := files(t, Options{CA: ca.File})
	if _, err := f.Server(); err == nil {
		t.Error("a server without a certificate")
	}
}
