package handler

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// logs is what was logged, for a test that looks at it.
type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestPipe(t *testing.T) {
	t.Setenv("LAPWING_SECRET", "not for you")
	t.Setenv("LC_TIME", "C")
	t.Setenv("PASSED_ON", "yes")
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	f := func(h *resource.Handler, wantResult, wantOutput, wantLog string) {
		t.Helper()
		_ = os.Remove(out)
		l := new(logs)
		b := setup(t, Options{Logger: testLogger(l), PassEnv: []string{"PASSED_ON", "NOT_THERE"}, MaxRun: time.Minute}, h)
		b.start(t)
		b.Dispatch(delivery(h.Metadata.Name, 1, "e"))
		b.finished.wait(1)
		if got := b.result("0-1-1/" + h.Metadata.Name); got != wantResult {
			t.Errorf("%s: result %s, want %s; %s", h.Command, got, wantResult, l)
		}
		if n := b.metric(t, "lapwing_handler_runs_total", h.Metadata.Name, wantResult); n != 1 {
			t.Errorf("%s: %v runs counted", h.Command, n)
		}
		if n := b.metric(t, "lapwing_handler_duration_seconds", h.Metadata.Name); n != 1 {
			t.Errorf("%s: %v durations", h.Command, n)
		}
		if got, _ := os.ReadFile(out); string(got) != wantOutput {
			t.Errorf("%s: output %q, want %q", h.Command, got, wantOutput)
		}
		if !strings.Contains(l.String(), wantLog) || wantLog == "" && strings.Contains(l.String(), "level=WARN") {
			t.Errorf("%s: logged %s, want %q", h.Command, l, wantLog)
		}
	}
	f(pipe("stdin", "cat >"+out), resultOK, "data 1", "")
	f(pipe("status", "echo out; echo err >&2; exit 3"), resultFailed, "", `err="status 3" output="out\nerr\n"`)
	f(pipe("unread", "true"), resultOK, "", "")
	f(pipe("missing", "/no/such/thing"), resultFailed, "", "status 127")
	f(pipe("long", "head -c 5000 /dev/zero | tr '\\0' x; exit 1"), resultFailed, "", "output="+strings.Repeat("x", 1024)+"\n")

	env := pipe("env", "echo $FOO,$PATH,$LAPWING_DELIVERY_ID,$LAPWING_SECRET,$LC_TIME,$PASSED_ON >"+out)
	env.EnvVars = []string{"FOO=bar", "PATH=/extra", "LAPWING_DELIVERY_ID=forged"}
	f(env, resultOK, "bar,/extra:"+os.Getenv("PATH")+",0-1-1/env,,C,yes\n", "")

	slow := pipe("slow", "echo begun; sleep 300")
	slow.Timeout = 1
	f(slow, resultTimeout, "", `output="begun\n"`)

	secret := pipe("secret", "true")
	secret.Secrets = []resource.Secret{{Name: "A", Secret: "b"}}
	f(secret, resultError, "", "secrets")

	set := pipe("set", "")
	set.Type = "set"
	f(set, resultError, "", "set")
}

func TestPipeHasABoundOfItsOwn(t *testing.T) {
	b := setup(t, Options{MaxRun: 100 * time.Millisecond}, pipe("a", "sleep 300"))
	b.start(t)
	b.Dispatch(delivery("a", 1, "e"))
	b.finished.wait(1)
	if got := b.result("0-1-1/a"); got != resultTimeout {
		t.Errorf("result %s", got)
	}
}

func TestStopKillsCommands(t *testing.T) {
	b := setup(t, Options{StopTimeout: time.Millisecond}, pipe("a", "sleep 300"))
	begun := make(chan struct{})
	b.runOnce = func(ctx context.Context, h *resource.Handler, dl *Delivery) ([]byte, error) {
		close(begun)
		return b.runKind(ctx, h, dl)
	}
	b.start(t)
	b.Dispatch(delivery("a", 1, "e"))
	<-begun
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	b.checkpoint(t, 0)
	if len(b.finished.wait(0)) != 0 || len(stored(t, b.db)) != 1 {
		t.Errorf("finished %v, stored %q", b.finished.wait(0), stored(t, b.db))
	}
}

func webhook(name, url string) *resource.Handler {
	return &resource.Handler{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "webhook",
		Webhook: &resource.HandlerWebhook{URL: url},
	}
}

func TestWebhook(t *testing.T) {
	type request struct {
		method, body, host string
		header             http.Header
	}
	requests := make(chan request, 10)
	statuses := make(chan int, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- request{r.Method, string(body), r.Host, r.Header}
		status := <-statuses
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		fmt.Fprint(w, "answer ", status)
	}))
	defer srv.Close()

	f := func(h *resource.Handler, wantResult, wantLog string, answers ...int) (last request) {
		t.Helper()
		for _, status := range answers {
			statuses <- status
		}
		l := new(logs)
		b := setup(t, Options{Logger: testLogger(l)}, h)
		b.start(t)
		b.Dispatch(delivery(h.Metadata.Name, 1, "e"))
		b.finished.wait(1)
		if got := b.result("0-1-1/" + h.Metadata.Name); got != wantResult || len(requests) != len(answers) {
			t.Errorf("%v: result %s after %d tries; %s", answers, got, len(requests), l)
		}
		if n := b.metric(t, "lapwing_handler_retries_total"); n != float64(len(answers)-1) {
			t.Errorf("%v: %v retries counted", answers, n)
		}
		if !strings.Contains(l.String(), wantLog) {
			t.Errorf("%v: logged %s, want %q", answers, l, wantLog)
		}
		if strings.Contains(l.String(), "s3cret") {
			t.Errorf("%v: the URL was logged: %s", answers, l)
		}
		for range answers {
			last = <-requests
			if last.body != "data 1" || last.header.Get("Idempotency-Key") != "0-1-1/"+h.Metadata.Name {
				t.Errorf("%v: got %+v", answers, last)
			}
		}
		return last
	}
	url := srv.URL + "/s3cret"
	got := f(webhook("plain", url), resultOK, `output="answer 200"`, 200)
	if got.method != "POST" || got.header.Get("Content-Type") != "application/json" || got.header.Get("User-Agent") != "lapwing" {
		t.Errorf("got %+v", got)
	}
	f(webhook("created", url), resultOK, "", 201)
	f(webhook("refused", url), resultFailed, `err="status 403" output="answer 403"`, 403)
	f(webhook("moved", url), resultFailed, "status 302", 302)
	f(webhook("recovers", url), resultOK, "", 503, 429, 204)
	f(webhook("stays broken", url), resultFailed, "status 500", 502, 500, 500)

	own := webhook("own", url)
	own.Webhook.Method, own.Mutator = "PUT", "only_check_output"
	own.Webhook.Headers = map[string]string{"x-token": "1", "host": "example.org", "idempotency-key": "mine"}
	got = f(own, resultOK, "", 200)
	if got.method != "PUT" || got.header.Get("X-Token") != "1" || got.host != "example.org" || got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("got %+v", got)
	}
	own.Webhook.Headers = map[string]string{"content-type": "application/x-own"}
	if got = f(own, resultOK, "", 200); got.header.Get("Content-Type") != "application/x-own" {
		t.Errorf("got %+v", got)
	}
}

func TestWebhookThatCannotBeReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	out := new(logs)
	bad := webhook("bad", "http://[::1/s3cret")
	none := webhook("none", "")
	none.Webhook = nil
	b := setup(t, Options{Logger: testLogger(out)}, webhook("refused", "http://"+addr+"/s3cret"), bad, none)
	b.start(t)
	b.Dispatch(delivery("refused", 1, "e"))
	b.Dispatch(delivery("bad", 2, "e"))
	b.Dispatch(delivery("none", 3, "e"))
	b.finished.wait(3)
	for _, id := range []string{"0-1-1/refused", "0-2-1/bad", "0-3-1/none"} {
		if got := b.result(id); got != resultError {
			t.Errorf("%s: %s", id, got)
		}
	}
	if n := b.metric(t, "lapwing_handler_retries_total", "refused"); n != 2 {
		t.Errorf("%v retries, want 2", n)
	}
	if strings.Contains(out.String(), "s3cret") {
		t.Errorf("the URL was logged: %s", out)
	}
}

func TestWebhookTimeout(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	h := webhook("slow", srv.URL)
	b := setup(t, Options{}, h)
	b.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.runKind(ctx, h, delivery("slow", 1, "e")); resultOf(err) != resultTimeout {
		t.Errorf("got %v", err)
	}
	h.Timeout = 1
	if _, err := b.runKind(t.Context(), h, delivery("slow", 1, "e")); resultOf(err) != resultTimeout {
		t.Errorf("got %v", err)
	}
}

func socket(name, network string, addr net.Addr) *resource.Handler {
	h := &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: network, Socket: &resource.HandlerSocket{Host: "127.0.0.1"}}
	switch addr := addr.(type) {
	case *net.TCPAddr:
		h.Socket.Port = uint32(addr.Port)
	case *net.UDPAddr:
		h.Socket.Port = uint32(addr.Port)
	}
	return h
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(got)
				return
			}
			b, _ := io.ReadAll(conn)
			conn.Close()
			got <- string(b)
		}
	}()
	b := setup(t, Options{}, socket("a", "tcp", l.Addr()))
	b.start(t)
	b.Dispatch(delivery("a", 1, "e"))
	if s := <-got; s != "data 1" {
		t.Errorf("got %q", s)
	}
	b.finished.wait(1)
	l.Close()
	<-got
	b.Dispatch(delivery("a", 2, "e"))
	b.finished.wait(2)
	if r1, r2 := b.result("0-1-1/a"), b.result("0-2-1/a"); r1 != resultOK || r2 != resultError {
		t.Errorf("results %s, %s", r1, r2)
	}
	if n := b.metric(t, "lapwing_handler_retries_total"); n != 2 {
		t.Errorf("%v retries, want 2", n)
	}
}

func TestTCPTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody accepts, nobody reads: a big write must end with the timeout
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = writeOnce(ctx, "tcp", socket("a", "tcp", l.Addr()), make([]byte, 64<<20))
	if resultOf(err) != resultTimeout {
		t.Errorf("got %v", err)
	}
}

func TestUDP(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h := socket("a", "udp", conn.LocalAddr())
	bare := socket("bare", "udp", nil)
	bare.Socket = nil
	b := setup(t, Options{}, h, bare)
	b.start(t)
	b.Dispatch(delivery("a", 1, "e"))
	buf := make([]byte, 100)
	n, _, err := conn.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "data 1" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	big := delivery("a", 2, "e")
	big.Data = make([]byte, 70000)
	b.Dispatch(big)
	b.Dispatch(delivery("bare", 3, "e"))
	b.finished.wait(3)
	got := []string{b.result("0-1-1/a"), b.result("0-2-1/a"), b.result("0-3-1/bare")}
	if !slices.Equal(got, []string{resultOK, resultError, resultError}) {
		t.Errorf("results %v", got)
	}
}
