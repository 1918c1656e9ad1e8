package crl

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRevoked(t *testing.T) {
	// Two authorities share a name, as after a change of keys: a list counts for the one that signed it.
	ca, namesake, other := testcert.New(t, "ca"), testcert.New(t, "ca"), testcert.New(t, "other")
	good, bad, worse := ca.Issue(t, []string{"good"}, nil).Leaf, ca.Issue(t, []string{"bad"}, nil).Leaf, other.Issue(t, []string{"worse"}, nil).Leaf
	var body atomic.Value
	body.Store(ca.Revoke(t))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := body.Load().([]byte)
		if text == nil {
			http.Error(w, "gone", http.StatusNotFound)
			return
		}
		_, _ = w.Write(text)
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "other.pem")
	testcert.Write(t, file, "X509 CRL", other.Revoke(t, worse))
	client := srv.Client()
	defer client.CloseIdleConnections()
	l, err := New(Options{Sources: []string{srv.URL, file}, HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Stop() }()
	expect := func(cert *x509.Certificate, issuer *testcert.Authority, want bool) {
		t.Helper()
		for range 2 { // the second answer comes from memory
			if got := l.Revoked(cert, issuer.Cert); got != want {
				t.Errorf("%s of %s revoked: %v", cert.Subject.CommonName, issuer.Cert.Subject, got)
			}
		}
	}
	expect(bad, ca, false)
	expect(worse, other, true)
	expect(worse, ca, false)
	body.Store(ca.Revoke(t, bad))
	l.refresh(context.Background())
	expect(bad, ca, true)
	expect(bad, namesake, false)
	expect(good, ca, false)
	for _, text := range [][]byte{nil, []byte("none"), {}} {
		body.Store(text)
		l.refresh(context.Background())
		expect(bad, ca, true)
	}
}

func TestStart(t *testing.T) {
	for source, want := range map[string]string{
		"ldap://x/y":            "neither",
		"/nowhere/list.pem":     "no such file",
		"file:///nowhere/l.pem": "no such file",
		"http://127.0.0.1:1/":   "connection refused",
	} {
		l, err := New(Options{Sources: []string{source}})
		if err == nil {
			err = l.Start(t.Context())
			_ = l.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
}
