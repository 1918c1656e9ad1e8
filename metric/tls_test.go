package metric

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/metric/relay"
)

func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	o.Dir, o.SelfInterval = t.TempDir(), -1
	var bad optionerr.List
	if o.Check(&bad); bad.Err() != nil {
		t.Fatal(bad.Err())
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) tlsAddr() string {
	for _, l := range s.listeners {
		if l.kind == "tls" {
			return l.Addr().String()
		}
	}
	return ""
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEncrypted sends a point through a relay, by TLS to a server that wants certificates, and from there to a receiver
// of remote write that wants certificates, a password and a tenant.
func TestEncrypted(t *testing.T) {
	ca := testcert.New(t, "ours")
	pair := ca.Issue(t, []string{"127.0.0.1"}, nil)
	arrived := make(chan string, 100)
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		plain, err := snappy.Decode(nil, body)
		var w prompb.WriteRequest
		if err == nil {
			err = w.Unmarshal(plain)
		}
		for _, series := range w.Timeseries {
			arrived <- fmt.Sprint(user, " ", password, " ", r.Header.Get("X-Scope-OrgID"), " ", r.Header.Get("X-Key"), " ",
				r.TLS.PeerCertificates[0].Subject.CommonName, " ", len(series.Labels), " ", series.Labels[0].Value, " ",
				series.Samples[0].Value, " ", err)
		}
	}))
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	receiver.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: x509.NewCertPool(),
		ClientAuth: tls.RequireAndVerifyClientCert}
	receiver.TLS.ClientCAs.AddCert(ca.Cert)
	receiver.StartTLS()
	defer receiver.Close()
	sender := ca.Issue(t, []string{"sender"}, nil)

	o := DefaultOptions()
	o.TLSAddress = "127.0.0.1:0"
	o.ListenTLS = ListenTLS{CertFile: pair.Cert, KeyFile: pair.Key, ClientCAFile: ca.File}
	o.RemoteWriteFile = writeFile(t, "receivers.yml", fmt.Sprintf(`
- name: mimir
  url: %s/api/v1/push
  username: 17
  password_file: %s
  headers: {X-Scope-OrgID: web}
  header_files: {X-Key: %s}
  ca_file: %s
  cert_file: %s
  key_file: %s
`, receiver.URL, writeFile(t, "password", "topsecret\n"), writeFile(t, "key", "more"), ca.File, sender.Cert, sender.Key))
	store := startServer(t, o)

	o = DefaultOptions()
	o.LineAddress = "127.0.0.1:0"
	o.Relay.Only, o.Relay.Protocol = true, relay.Line.String()
	o.Relay.Destinations = []string{"tls://" + store.tlsAddr() + ":a"}
	o.Relay.CAFile, o.Relay.CertFile, o.Relay.KeyFile = ca.File, sender.Cert, sender.Key
	front := startServer(t, o)

	c, err := net.Dial("tcp", front.Addr(carbon.LineTCP).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "a.b 42 %d\n", time.Now().Unix()); err != nil {
		t.Fatal(err)
	}
	want := `17 topsecret web more sender 1 a.b 42 <nil>`
	select {
	case got := <-arrived:
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("the point does not arrive")
	}
	if store.Addr(carbon.LineTCP) != nil || !strings.Contains(fmt.Sprint(store.Ports()...), "carbon_tls") {
		t.Errorf("the encrypted listener counts as plain: %v", store.Ports())
	}
}

// TestEncryptedOptions checks the options of credentials and certificates, and that no error or log line has a secret.
func TestEncryptedOptions(t *testing.T) {
	ca := testcert.New(t, "ours")
	pair := ca.Issue(t, []string{"127.0.0.1"}, nil)
	for want, change := range map[string]func(*Options){
		"--carbon-tls-listen-address: it needs": func(o *Options) { o.TLSAddress = "127.0.0.1:0" },
		"--carbon-tls-listen-address: it is missing": func(o *Options) {
			o.ListenTLS = ListenTLS{CertFile: pair.Cert, KeyFile: pair.Key}
		},
		"--carbon-tls-cert-file: a certificate and": func(o *Options) {
			o.TLSAddress, o.ListenTLS.KeyFile = "127.0.0.1:0", pair.Key
		},
		"--carbon-tls-cert-file: load certificate": func(o *Options) {
			o.TLSAddress, o.ListenTLS = "127.0.0.1:0", ListenTLS{CertFile: pair.Cert, KeyFile: ca.File}
		},
		"--relay-tls-cert-file: a certificate and": func(o *Options) { o.Relay.CertFile = pair.Cert },
		"--relay-tls-ca-file: it is for":           func(o *Options) { o.Relay.CAFile = ca.File },
		"TLS does not work with --relay-protocol": func(o *Options) {
			o.Relay.Protocol, o.Relay.Destinations = "udp", []string{"tls://127.0.0.1:1"}
		},
		"--relay-destinations: read certificate": func(o *Options) {
			o.Relay.CAFile, o.Relay.Destinations = pair.Key, []string{"tls://127.0.0.1:1"}
		},
		"--relay-destinations: destination": func(o *Options) { o.Relay.Destinations = []string{"tls://127.0.0.1"} },
		"--metric-remote-write-url: remote write to \"remote-0\": the URL has a user": func(o *Options) {
			o.RemoteWriteURLs = []string{"https://u:topsecret@localhost/"}
		},
		"--metric-remote-write-url: remote write to \"remote-0\": the URL is not": func(o *Options) {
			o.RemoteWriteURLs = []string{"ftp://u:topsecret@localhost/"}
		},
		"--metric-remote-write-file: receivers of remote write: open": func(o *Options) { o.RemoteWriteFile = "/nowhere/file" },
		"names that begin with": func(o *Options) {
			o.RemoteWriteFile = writeFile(t, "f", "[{name: remote-0, url: 'http://u:topsecret@localhost/'}]")
		},
		"--metric-remote-write-file: remote write to \"a\": the URL has": func(o *Options) {
			o.RemoteWriteFile = writeFile(t, "f", "[{name: a, url: 'http://u:topsecret@localhost/'}]")
		},
		"--relay-only: --metric-remote-write-url": func(o *Options) {
			o.RemoteWriteFile = writeFile(t, "f", "[{name: a, url: 'http://localhost/'}]")
			o.Relay.Only, o.Relay.Destinations = true, []string{"127.0.0.1:1"}
		},
	} {
		o := DefaultOptions()
		change(&o)
		var bad optionerr.List
		o.Check(&bad)
		if err := bad.Err(); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "topsecret") {
			t.Errorf("got %v\nwant %s", err, want)
		}
		var log bytes.Buffer
		o.Dir, o.Logger = t.TempDir(), slog.New(slog.NewTextHandler(&log, nil))
		s, err := New(o)
		if err == nil {
			err = s.Stop(t.Context()) // New checks less
		}
		if text := fmt.Sprint(err, log.String()); strings.Contains(text, "topsecret") {
			t.Errorf("New has a secret in its error or log: %s", text)
		}
	}
}
