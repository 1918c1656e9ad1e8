package send

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup makes a sender that is stopped when the test ends.
func setup(t testing.TB, opts Options) *Sender {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func timeoutContext(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

func handler(kind string) *resource.Handler {
	return &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: kind}, Type: kind, Timeout: 10}
}

// event returns an incident of web1/disk at the given status. Its history is before, then the status.
func event(status uint32, before ...uint32) *resource.Event {
	ev := &resource.Event{
		Timestamp: 1_700_000_100, ID: []byte("0123456789abcdef"),
		Entity: &resource.Entity{
			EntityClass: "agent", System: resource.System{Hostname: "web1.example.org"},
			Metadata: resource.ObjectMeta{Namespace: "default", Name: "web1", Labels: map[string]string{"rack": "17", "password": "s3cret"}},
		},
		Check: &resource.Check{
			Status: status, Output: "DISK <full>\nsecond & last line\n", Occurrences: 3, Executed: 1_700_000_090, Command: "check-disk",
			Metadata: resource.ObjectMeta{Namespace: "default", Name: "disk", Annotations: map[string]string{"team": "storage"}},
		},
	}
	for i, s := range append(before, status) {
		ev.Check.History = append(ev.Check.History, resource.CheckHistory{Status: s, Executed: 1_700_000_090 - int64(len(before)-i)*60})
	}
	return ev
}

func job(ev *resource.Event) Job { return Job{ID: "event-1/h", Event: ev, Attempt: 1} }

// request is a request that a web service got.
type request struct {
	method, path, query, body string
	host                      string
	header                    http.Header
}

// service is a web service with a test's answers. It records its requests.
type service struct {
	*httptest.Server
	requests chan request

	mu     sync.Mutex
	answer func(w http.ResponseWriter)
}

func newService(t testing.TB, answer func(w http.ResponseWriter)) *service {
	t.Helper()
	s := &service{requests: make(chan request, 100), answer: answer}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.requests <- request{r.Method, r.URL.Path, r.URL.RawQuery, string(body), r.Host, r.Header}
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	answer(w)
}

func (s *service) answers(f func(w http.ResponseWriter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// asked returns the next request, which must be there.
func (s *service) asked(t testing.TB) request {
	t.Helper()
	select {
	case r := <-s.requests:
		return r
	default:
		t.Fatal("the service was not asked")
		return request{}
	}
}

func status(code int, body string, header ...string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// closedAddress returns an address that refuses connections.
func closedAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silent accepts connections, and sends nothing on them, until the test ends.
func silent(t testing.TB) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr)
}

func decode(t testing.TB, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// want compares a result. An empty text in err means none.
func want(t testing.TB, what string, res Result, kind string, temporary bool, err string) {
	t.Helper()
	text := ""
	if res.Err != nil {
		text = res.Err.Error()
	}
	if err == "deadline" {
		text = strings.ReplaceAll(text, "i/o timeout", "deadline exceeded") // either may come first
	}
	if res.Kind != kind || res.Temporary != temporary || !strings.Contains(text, err) || (err == "") != (text == "") {
		t.Errorf("%s: %s, temporary %v, status %d, error %q, output %q; want %s, temporary %v, %q", what, res.Kind,
			res.Temporary, res.Status, text, res.Output, kind, temporary, err)
	}
}

func TestOptions(t *testing.T) {
	for _, opts := range []Options{{MaxProcesses: -1}, {MaxRun: -1}} {
		if _, err := New(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

func TestTypesThatCannotBeRun(t *testing.T) {
	r := prometheus.NewRegistry()
	s := setup(t, Options{Registerer: r})
	want(t, "set", s.Run(t.Context(), handler("set"), job(event(2))), KindError, false, `handlers of type "set"`)
	for kind := range kinds { // none has its settings
		want(t, kind, s.Run(t.Context(), handler(kind), job(event(2))), KindError, false, "handler has no ")
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() == "lapwing_send_attempts_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	if n != float64(1+len(kinds)) {
		t.Errorf("%v attempts counted", n)
	}
}

// TestEveryTypeIsKnown compares the types that can be defined with the kinds that can run.
func TestEveryTypeIsKnown(t *testing.T) {
	others := []string{"pipe", "set", resource.EscalationType} // pipe is run by itself, sets and escalations by their handlers
	for _, kind := range resource.HandlerTypes {
		if _, ok := kinds[kind]; !ok && !slices.Contains(others, kind) {
			t.Errorf("type %s can be defined, but not run", kind)
		}
	}
	if len(kinds)+len(others) != len(resource.HandlerTypes) {
		t.Errorf("%d types can be run, %d defined", len(kinds)+len(others), len(resource.HandlerTypes))
	}
}

func TestStatusesOfADefinition(t *testing.T) {
	srv := newService(t, status(404, "not yet"))
	s := setup(t, Options{})
	h := handler("webhook")
	h.Webhook = &resource.HandlerWebhook{URL: srv.URL}
	want(t, "plain", s.Run(t.Context(), h, job(event(2))), KindFailed, false, "status 404")
	h.Retry = &resource.HandlerRetry{Statuses: []int{404}}
	want(t, "named", s.Run(t.Context(), h, job(event(2))), KindFailed, true, "status 404")
	p := handler("pipe")
	p.Command, p.Retry = "exit 3", &resource.HandlerRetry{Statuses: []int{3}}
	want(t, "exit", s.Run(t.Context(), p, job(event(2))), KindFailed, true, "status 3")
	p.Command = "exit 75"
	want(t, "exit", s.Run(t.Context(), p, job(event(2))), KindFailed, false, "status 75")
}

func TestStoppedAttemptIsTemporary(t *testing.T) {
	s := setup(t, Options{})
	h := handler("tcp")
	h.Socket = &resource.HandlerSocket{Host: "127.0.0.1", Port: uint32(silent(t).Port)}
	ctx, cancel := timeoutContext(t, time.Millisecond)
	defer cancel()
	<-ctx.Done()
	for _, h := range []*resource.Handler{h, {Type: "pipe", Command: "true"}} {
		if res := s.Run(ctx, h, job(event(2))); res.Err == nil || !res.Temporary {
			t.Errorf("%s: %+v", h.Type, res)
		}
	}
}
