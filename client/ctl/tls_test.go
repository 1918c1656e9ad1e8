package ctl_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTLS(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail on purpose
	srv.StartTLS()
	defer srv.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}

	list := func(args ...string) error {
		root := newRoot()
		root.SetOut(io.Discard)
		root.SetErr(new(bytes.Buffer))
		root.SetArgs(append([]string{"check", "list", "--api-key", "k"}, args...))
		return root.Execute()
	}
	fails := func(want string, args ...string) {
		t.Helper()
		if err := list(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	works := func(args ...string) {
		t.Helper()
		if err := list(args...); err != nil {
			t.Error(err)
		}
	}
	fails("\nName the file with the server's certificate authority with --trusted-ca-file.", "--api-url", srv.URL)
	works("--api-url", srv.URL, "--trusted-ca-file", ca)
	fails("\nThe certificate is for another name: use one of its names in --api-url.",
		"--api-url", strings.Replace(srv.URL, "127.0.0.1", "localhost", 1), "--trusted-ca-file", ca)
	fails("\nThe server speaks HTTPS: use --api-url https://", "--api-url", strings.Replace(srv.URL, "https:", "http:", 1))
	works("--api-url", srv.URL, "--insecure-skip-tls-verify")
	t.Setenv("SENSU_INSECURE_SKIP_TLS_VERIFY", "true")
	works("--api-url", srv.URL)
	t.Setenv("LAPWING_INSECURE_SKIP_TLS_VERIFY", "false")
	fails("--trusted-ca-file", "--api-url", srv.URL)
	t.Setenv("LAPWING_INSECURE_SKIP_TLS_VERIFY", "perhaps")
	fails(`LAPWING_INSECURE_SKIP_TLS_VERIFY: "perhaps" is neither true nor false`, "--api-url", srv.URL)
	t.Setenv("LAPWING_INSECURE_SKIP_TLS_VERIFY", "")
	picky := httptest.NewUnstartedServer(srv.Config.Handler)
	picky.Config.ErrorLog = srv.Config.ErrorLog
	picky.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	picky.StartTLS()
	defer picky.Close()
	fails("\nThe server asks for a client certificate", "--api-url", picky.URL, "--insecure-skip-tls-verify")
	fails("\nThe server speaks plain HTTP: use --api-url http://", "--api-url", strings.Replace(plain.URL, "http:", "https:", 1))
}
