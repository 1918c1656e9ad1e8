package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

// secret writes a file.
func secret(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func manyHeaders() map[string]string {
	many := map[string]string{}
	for i := range maxHeaders + 1 {
		many[fmt.Sprint("A", i)] = "file"
	}
	return many
}

// output collects log lines. Its wait returns when one has a text.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed by the next line; nil if no wait needs it
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.text.Write(b)
}

func (o *output) wait(text string) {
	for {
		o.mu.Lock()
		if bytes.Contains(o.text.Bytes(), []byte(text)) {
			o.mu.Unlock()
			return
		}
		if o.more == nil {
			o.more = make(chan struct{})
		}
		more := o.more
		o.mu.Unlock()
		<-more
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func serverTLS(t testing.TB, pair testcert.Pair) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

func pool(ca *testcert.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.Cert)
	return p
}

// TestTLS sends to servers that want a certificate, over HTTP/1 and HTTP/2.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca, stranger := testcert.New(t, "ours"), testcert.New(t, "stranger")
	here := ca.Issue(t, []string{"127.0.0.1"}, nil)
	own, wrong := ca.Issue(t, []string{"sender"}, nil), stranger.Issue(t, []string{"sender"}, nil)
	for _, tc := range []struct {
		name   string
		http2  bool
		change func(*Options)
		want   string // in the log; "" if the sample arrives
	}{
		{"good", false, func(*Options) {}, ""},
		{"good over HTTP/2", true, func(*Options) {}, ""},
		{"no certificate", false, func(o *Options) { o.CertFile, o.KeyFile = "", "" }, "certificate required"},
		{"wrong certificate", false, func(o *Options) { o.CertFile, o.KeyFile = wrong.Cert, wrong.Key }, "tls: "},
		{"wrong authority", false, func(o *Options) { o.CAFile = stranger.File }, "unknown authority"},
		{"system's authorities", false, func(o *Options) { o.CAFile = "" }, "unknown authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rc := newReceiver(t)
			server := httptest.NewUnstartedServer(rc)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.EnableHTTP2 = tc.http2
			server.TLS = serverTLS(t, here)
			server.TLS.ClientCAs, server.TLS.ClientAuth = pool(ca), tls.RequireAndVerifyClientCert
			server.StartTLS()
			defer server.Close()
			var out output
			o := Options{Name: "mimir", URL: server.URL + "/api/v1/write?token=topsecret", BatchSamples: 1,
				Log: slog.New(slog.NewTextHandler(&out, nil)), CAFile: ca.File, CertFile: own.Cert, KeyFile: own.Key}
			tc.change(&o)
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			s.Add([]byte("m"), 1, 1)
			if tc.want == "" {
				stop(t, s)
				if got := rc.got(); len(got) != 1 || (rc.seen[0].ProtoMajor == 2) != tc.http2 ||
					rc.seen[0].TLS.PeerCertificates[0].Subject.CommonName != "sender" {
					t.Errorf("got %q by %v", got, rc.seen)
				}
				return
			}
			out.wait("tried again")
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_ = s.Stop(ended)
			if got := out.String(); !strings.Contains(got, tc.want) || strings.Contains(got, "topsecret") || len(rc.got()) > 0 {
				t.Errorf("the log has %s; want %q, and no secret; %q arrived", got, tc.want, rc.got())
			}
		})
	}
}

// gate lets in only requests with the right credentials.
type gate struct {
	*receiver
	mu    sync.Mutex
	right string
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	right := r.Header.Get("Authorization") == g.right
	g.mu.Unlock()
	if !right {
		w := httptest.NewRecorder()
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return w.Result(), nil
	}
	return g.receiver.RoundTrip(r)
}

// TestNewPassword checks that samples wait while a receiver refuses the password, and leave when its file has a new
// one.
func TestNewPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{receiver: newReceiver(t), right: "Bearer old-secret"}
		var out output
		file := secret(t, "old-secret")
		registry := prometheus.NewRegistry()
		s, err := New(Options{Name: "mimir", URL: "http://receiver/api/v1/write", BatchSamples: 1, BearerTokenFile: file,
			Registerer: registry, transport: g, Log: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		s.Add([]byte("m"), 1, 1)
		synctest.Wait()
		g.mu.Lock()
		g.right = "Bearer new-secret"
		g.mu.Unlock()
		for i := range 5 {
			s.Add([]byte("m"), int64(2+i), 1)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil { // as a shell does before it writes
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := g.got(); len(got) != 1 {
			t.Errorf("got %q; want the first sample only", got)
		}
		if err := os.WriteFile(file, []byte("new-secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := g.got(); len(got) != 6 || dropped(s, "refused") != 0 {
			t.Errorf("got %q, %v refused; want all samples", got, dropped(s, "refused"))
		}
		stop(t, s)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if all := fmt.Sprint(families, out.String()); strings.Contains(all, "secret") || !strings.Contains(all, "is empty") {
			t.Errorf("secrets in metrics or the log: %s", all)
		}
	})
}

// TestNewCertificate checks that a new certificate is used by the next request, although the connection is still open.
func TestNewCertificate(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t, "ours")
	rc := newReceiver(t)
	server := httptest.NewUnstartedServer(rc)
	server.TLS = serverTLS(t, ca.Issue(t, []string{"127.0.0.1"}, nil))
	server.TLS.ClientCAs, server.TLS.ClientAuth = pool(ca), tls.RequireAndVerifyClientCert
	server.StartTLS()
	defer server.Close()
	first, second := ca.Issue(t, []string{"first"}, nil), ca.Issue(t, []string{"second"}, nil)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	testcert.Copy(t, first.Cert, cert)
	testcert.Copy(t, first.Key, key)
	var out output
	s, err := New(Options{Name: "mimir", URL: server.URL + "/api/v1/write", FilesEvery: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&out, nil)), CAFile: ca.File, CertFile: cert, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	var n names
	n.init(Options{})
	request := compress(appendSeries(nil, n.labels([]byte("m")), 1, 1))
	send := func() string {
		t.Helper()
		if _, _, err := s.post(request); err != nil {
			t.Fatal(err)
		}
		rc.mu.Lock()
		defer rc.mu.Unlock()
		return rc.seen[len(rc.seen)-1].TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := []string{send(), send()}; !slices.Equal(got, []string{"first", "first"}) {
		t.Errorf("certificates %q", got)
	}
	testcert.Copy(t, second.Cert, cert)
	out.wait("cannot be used") // the certificate has another key
	if got := send(); got != "first" {
		t.Errorf("certificate %q; want the first, as long as the second has no key", got)
	}
	testcert.Copy(t, second.Key, key)
	out.wait("read again")
	if got := send(); got != "second" {
		t.Errorf("certificate %q; want the second", got)
	}
	stop(t, s)
}

func TestReceivers(t *testing.T) {
	t.Parallel()
	all, err := ReadReceivers(secret(t, `
- name: mimir
  url: https://mimir.example.com/api/v1/push
  username: 123456
  password_file: /etc/lapwing/mimir.password
  headers: {X-Scope-OrgID: 7}
  header_files: {X-Api-Key: /etc/lapwing/key}
  ca_file: ca.pem
  cert_file: cert.pem
  key_file: key.pem
  labels: {dc: a}
  match: ^a
  sanitize_names: true
- {name: thanos-2, url: "http://localhost/", bearer_token_file: token}
`))
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if got, want := fmt.Sprintf("%+v", all[0]), fmt.Sprintf("%+v", Options{
		Name: "mimir", URL: "https://mimir.example.com/api/v1/push", Username: "123456",
		PasswordFile: "/etc/lapwing/mimir.password", Headers: map[string]string{"X-Scope-OrgID": "7"},
		HeaderFiles: map[string]string{"X-Api-Key": "/etc/lapwing/key"},
		CAFile:      "ca.pem", CertFile: "cert.pem", KeyFile: "key.pem", Labels: map[string]string{"dc": "a"}, Match: "^a",
		Sanitize: true}); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if all[1].Name != "thanos-2" || all[1].BearerTokenFile != "token" {
		t.Errorf("got %+v", all[1])
	}
	for text, want := range map[string]string{
		"":                                   "no receivers",
		"[]":                                 "no receivers",
		"[{url: x}]":                         "receiver 1: name",
		"[{name: ../x}]":                     "receiver 1: name",
		"[{name: a}, {name: a}]":             "twice",
		"[{name: a, password: topsecret}]":   "line 1: field password is unknown",
		"[{name: a, headers: topsecret}]":    "cannot unmarshal !!str into map",
		"[{name: a, headers: 'top`secret'}]": "cannot unmarshal !!str into map",
		"name: a":                            "cannot unmarshal !!map",
		"[{name: a}]\n---\n[]":               "more than one",
		"[{name: a":                          "line 1",
		"[" + strings.Repeat("{name: a},", 51) + "]": "the limit is",
		strings.Repeat("#", MaxFile+1):               "more than",
	} {
		_, err := ReadReceivers(secret(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.50s: %v; want %q", text, err, want)
		}
	}
	if _, err := ReadReceivers(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzReceivers checks that no file of receivers makes a panic, and that all names are directories' names.
func FuzzReceivers(f *testing.F) {
	f.Add([]byte("- {name: mimir, url: 'http://localhost/', headers: {A: b}}"))
	f.Add([]byte("- &a {name: x, labels: {b: c}}\n- {<<: *a, name: y}"))
	f.Add([]byte("[{name: [1, {}], url: !!binary aGk=}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseReceivers(text)
		if err != nil {
			return
		}
		for _, o := range all {
			if filepath.Base(o.Name) != o.Name || strings.HasPrefix(o.Name, ".") {
				t.Errorf("name %q", o.Name)
			}
			_ = o.checkAccess()
		}
	})
}

// TestRepeatedSecrets has a receiver whose answers repeat the credentials that it got.
func TestRepeatedSecrets(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintln(w, "bad:", r.Header.Get("Authorization"), user, password, r.Header.Get("X-Key"))
	}))
	defer server.Close()
	for _, change := range []func(*Options){
		func(o *Options) { o.BearerTokenFile = secret(t, "topsecret1") },
		func(o *Options) { o.Username, o.PasswordFile = "lapwing", secret(t, "topsecret2") },
		func(o *Options) { o.HeaderFiles = map[string]string{"authorization": secret(t, "Own topsecret3")} },
		func(o *Options) { o.HeaderFiles = map[string]string{"X-Key": secret(t, "topsecret4")} },
	} {
		o := Options{Name: "mimir", URL: server.URL, Log: slog.New(slog.DiscardHandler)}
		change(&o)
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.post(nil)
		if err == nil || !strings.Contains(err.Error(), "401 Unauthorized: bad:") ||
			strings.Contains(err.Error(), "topsecret") ||
			strings.Contains(err.Error(), "bGFwd2luZzp0b3BzZWNyZXQy") {
			t.Errorf("the error is %v", err)
		}
	}
}
