package send

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func webhook(url string) *resource.Handler {
	h := handler("webhook")
	h.Webhook = &resource.HandlerWebhook{URL: url}
	return h
}

func TestWebhook(t *testing.T) {
	srv := newService(t, nil)
	s := setup(t, Options{})
	url := srv.URL + "/s3cret"
	f := func(code int, kind string, temporary bool, after time.Duration, header ...string) {
		t.Helper()
		srv.answers(status(code, fmt.Sprint("answer ", code), append(header, "Location", "/elsewhere")...))
		res := s.Run(t.Context(), webhook(url), job(event(2)))
		text := ""
		if kind != KindOK {
			text = fmt.Sprint("status ", code)
		}
		want(t, fmt.Sprint(code), res, kind, temporary, text)
		if res.RetryAfter != after || res.Status != code || code != 204 && code != 304 && string(res.Output) != fmt.Sprint("answer ", code) {
			t.Errorf("%d: status %d, retry after %v, want %v, output %q", code, res.Status, res.RetryAfter, after, res.Output)
		}
		srv.asked(t)
	}
	f(200, KindOK, false, 0)
	f(201, KindOK, false, 0)
	f(204, KindOK, false, 0)
	f(302, KindFailed, false, 0)
	f(400, KindFailed, false, 0)
	f(401, KindFailed, false, 0)
	f(404, KindFailed, false, 0)
	f(408, KindFailed, true, 0)
	f(413, KindFailed, false, 0)
	f(425, KindFailed, true, 0)
	f(429, KindFailed, true, 17*time.Second, "Retry-After", "17")
	f(429, KindFailed, true, maxRetryAfter, "Retry-After", "99999999")
	f(429, KindFailed, true, 0, "Retry-After", "soon")
	f(500, KindFailed, true, 0)
	f(501, KindFailed, false, 0)
	f(502, KindFailed, true, 0)
	f(503, KindFailed, true, 120*time.Second, "Retry-After", "120")
	f(505, KindFailed, false, 0)
}

func TestRetryAfterDate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0, "-3": 0, "": 0, "1.5": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

func TestWebhookRequest(t *testing.T) {
	srv := newService(t, status(200, "ok"))
	s := setup(t, Options{})
	h := webhook(srv.URL + "/hook?a=b")
	run := func(job Job) request {
		t.Helper()
		want(t, "run", s.Run(t.Context(), h, job), KindOK, false, "")
		return srv.asked(t)
	}
	got := run(Job{ID: "1/a", Data: []byte("data")})
	if got.method != "POST" || got.path != "/hook" || got.query != "a=b" || got.body != "data" ||
		got.header.Get("Content-Type") != "application/json" ||
		got.header.Get("User-Agent") != "lapwing" || got.header.Get("Idempotency-Key") != "1/a" || got.header.Get("Authorization") != "" {
		t.Errorf("got %+v", got)
	}
	if got = run(job(event(2))); !strings.Contains(got.body, `"name":"disk"`) || strings.Contains(got.body, "s3cret") {
		t.Errorf("got %+v", got)
	}
	h.Mutator = "only_check_output"
	if got = run(Job{Data: []byte("x")}); got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("got %+v", got)
	}
	h.Webhook.Method = "PUT"
	h.Webhook.Headers = map[string]string{
		"x-token": "1", "host": "example.org", "idempotency-key": "mine", "content-type": "application/x-own",
	}
	h.Webhook.Username, h.Webhook.Password = "bob", "pass"
	got = run(job(event(2)))
	if got.method != "PUT" || got.header.Get("X-Token") != "1" || got.host != "example.org" ||
		got.header.Get("Idempotency-Key") != "event-1/h" ||
		got.header.Get("Content-Type") != "application/x-own" || got.header.Get("Authorization") != "Basic Ym9iOnBhc3M=" {
		t.Errorf("got %+v", got)
	}

	h = webhook(srv.URL)
	h.Webhook.Body, h.Webhook.ContentType = `{"text": {{toJson .Output}}, "state": "{{.State}}"}`, "application/x-chat"
	got = run(Job{ID: "1/a", Event: event(0, 1)})
	if got.body != `{"text": "DISK \u003cfull\u003e\nsecond \u0026 last line", "state": "RESOLVED"}` ||
		got.header.Get("Content-Type") != "application/x-chat" {
		t.Errorf("got %+v", got)
	}
	// A mutator's result counts, if it is an event.
	if got = run(Job{
		Mutated: true,
		Data:    []byte(`{"entity":{"metadata":{"name":"other"}},"check":{"status":1,"metadata":{"name":"c"}}}`),
		Event:   event(2),
	}); !strings.Contains(got.body, `"WARNING"`) {
		t.Errorf("got %+v", got)
	}
	if got = run(Job{Mutated: true, Data: []byte(`{"a":1}`), Event: event(2)}); !strings.Contains(got.body, `"CRITICAL"`) {
		t.Errorf("got %+v", got)
	}
}

func TestSecretFiles(t *testing.T) {
	srv := newService(t, status(200, "ok"))
	dir := t.TempDir()
	s := setup(t, Options{SecretDirs: []string{filepath.Dir(dir)}})
	h := webhook("")
	h.Webhook.URLFile, h.Webhook.TokenFile = filepath.Join(dir, "url"), filepath.Join(dir, "token")
	want(t, "missing", s.Run(t.Context(), h, job(event(2))), KindError, true, "read secret")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("url", srv.URL+"/from-file\n")
	write("token", "abc\n")
	want(t, "there", s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
	if got := srv.asked(t); got.path != "/from-file" || got.header.Get("Authorization") != "Bearer abc" {
		t.Errorf("got %+v", got)
	}
	write("token", "next")
	want(t, "changed", s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
	if got := srv.asked(t); got.header.Get("Authorization") != "Bearer next" {
		t.Errorf("got %+v", got)
	}
	h.Webhook.TokenFile = dir // a pipe would block the attempt
	want(t, "no file", s.Run(t.Context(), h, job(event(2))), KindError, true, "no regular file")
	write("token", strings.Repeat("x", maxFile+1))
	h.Webhook.TokenFile = filepath.Join(dir, "token")
	want(t, "large", s.Run(t.Context(), h, job(event(2))), KindError, true, "larger than")
}

func TestWebhookThatCannotBeReached(t *testing.T) {
	s := setup(t, Options{})
	f := func(url string, temporary bool, err string) {
		t.Helper()
		res := s.Run(t.Context(), webhook(url), job(event(2)))
		want(t, url, res, KindError, temporary, err)
		if strings.Contains(res.Err.Error(), "s3cret") {
			t.Errorf("the error tells the URL: %v", res.Err)
		}
	}
	f("http://"+closedAddress(t)+"/s3cret", true, "refused")
	f("http://[::1/s3cret", false, "missing ']'")
	f("gopher://h/s3cret", false, "unsupported protocol")
	f("/s3cret", false, "unsupported protocol")
	h := webhook("http://" + closedAddress(t))
	h.Webhook.Headers = map[string]string{"x": "a\nb"}
	want(t, "header", s.Run(t.Context(), h, job(event(2))), KindError, false, "invalid header")
	h.Webhook.Headers, h.Webhook.Method = nil, "A B"
	want(t, "method", s.Run(t.Context(), h, job(event(2))), KindError, false, "invalid method")
	h.Webhook.Method, h.Webhook.Body = "", "{{.Nothing}}"
	want(t, "template", s.Run(t.Context(), h, job(event(2))), KindError, false, "can't evaluate field Nothing")
}

// TestWebhookThatMisbehaves connects to receivers that do not speak HTTP.
func TestWebhookThatMisbehaves(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	serve := func(f func(conn net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				f(conn)
				conn.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
		return "http://" + l.Addr().String()
	}
	f := func(what, url, kind string, temporary bool, err string) {
		t.Helper()
		h := webhook(url)
		h.Timeout = 300
		if kind == KindTimeout || strings.Contains(what, "a little") {
			h.Timeout = 1
		}
		begin := time.Now()
		res := s.Run(t.Context(), h, job(event(2)))
		want(t, what, res, kind, temporary, err)
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("%s: held the attempt for %v", what, took)
		}
		if len(res.Output) > maxOutput {
			t.Errorf("%s: %d bytes were kept", what, len(res.Output))
		}
	}
	f("accepts and never answers", "http://"+silent(t).String(), KindTimeout, true, "deadline")
	f("hangs up", serve(func(net.Conn) {}), KindError, true, "EOF")
	f("talks something else", serve(func(conn net.Conn) { fmt.Fprint(conn, "220 mail.example.org ESMTP\r\n") }),
		KindError, true, "malformed HTTP")
	flood := func(begin, more string) string {
		return serve(func(conn net.Conn) {
			fmt.Fprint(conn, begin)
			for more := strings.Repeat(more, 100); ; {
				if _, err := conn.Write([]byte(more)); err != nil {
					return
				}
			}
		})
	}
	f("never ends its headers", flood("HTTP/1.1 200 OK\r\n", "X: y\r\n"), KindError, true, "exceeded 65536 bytes")
	f("never ends its answer", flood("HTTP/1.1 200 OK\r\n\r\n", "answer"), KindOK, false, "")
	f("never ends its complaint", flood("HTTP/1.1 500 No\r\n\r\n", "no"), KindFailed, true, "status 500")
	f("answers a little at a time", serve(func(conn net.Conn) {
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
		for range time.Tick(20 * time.Millisecond) { // so slowly that all of it would take longer than the attempt may
			if _, err := conn.Write([]byte("x")); err != nil {
				return
			}
		}
	}), KindOK, false, "")
}

func TestWebhookTLS(t *testing.T) {
	ca, other := testcert.New(t, "ours"), testcert.New(t, "other")
	pair := ca.Issue(t, []string{"127.0.0.1", "hook.example.org"}, nil)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d certificates", len(r.TLS.PeerCertificates))
	}))
	srv.TLS = serverTLS(t, pair)
	srv.Config.ErrorLog = quietLog
	srv.StartTLS()
	defer srv.Close()
	s := setup(t, Options{SecretDirs: []string{os.TempDir()}})
	f := func(settings *resource.HandlerTLS, kind string, temporary bool, err, output string) {
		t.Helper()
		h := webhook(srv.URL)
		h.Webhook.TLS = settings
		res := s.Run(t.Context(), h, job(event(2)))
		want(t, fmt.Sprintf("%+v", settings), res, kind, temporary, err)
		if string(res.Output) != output {
			t.Errorf("%+v: output %q", settings, res.Output)
		}
	}
	f(&resource.HandlerTLS{CAFile: ca.File}, KindOK, false, "", "0 certificates")
	f(&resource.HandlerTLS{InsecureSkipVerify: true}, KindOK, false, "", "0 certificates")
	f(&resource.HandlerTLS{CAFile: ca.File, ServerName: "hook.example.org"}, KindOK, false, "", "0 certificates")
	client := ca.Issue(t, []string{"lapwing"}, nil)
	f(&resource.HandlerTLS{CAFile: ca.File, CertFile: client.Cert, KeyFile: client.Key}, KindOK, false, "", "1 certificates")
	f(nil, KindError, true, "unknown authority", "")
	f(&resource.HandlerTLS{CAFile: other.File}, KindError, true, "unknown authority", "")
	f(&resource.HandlerTLS{CAFile: ca.File, ServerName: "wrong.example.org"}, KindError, true, "wrong.example.org", "")
	f(&resource.HandlerTLS{CAFile: "/no/such/file"}, KindError, true, "no such file", "")
	f(&resource.HandlerTLS{CAFile: client.Key}, KindError, true, "has none", "")
	f(&resource.HandlerTLS{CertFile: client.Cert, KeyFile: pair.Key}, KindError, true, "does not match", "")

	// Certificates are read each time: here the authority's file comes after the handler, as in a renewal.
	late := filepath.Join(t.TempDir(), "ca.pem")
	testcert.Copy(t, other.File, late)
	f(&resource.HandlerTLS{CAFile: late}, KindError, true, "unknown authority", "")
	testcert.Copy(t, ca.File, late)
	f(&resource.HandlerTLS{CAFile: late}, KindOK, false, "", "0 certificates")

	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	h := webhook(strings.Replace(plain.URL, "http:", "https:", 1))
	want(t, "no TLS there", s.Run(t.Context(), h, job(event(2))), KindError, true, "HTTP response to HTTPS client")
}

func TestClientsAreBounded(t *testing.T) {
	s := setup(t, Options{})
	for i := range 2 * maxClients {
		if _, err := s.clients.get(nil, &resource.HandlerTLS{ServerName: fmt.Sprint("h", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.clients.byID); n > maxClients {
		t.Errorf("%d clients are kept", n)
	}
}
