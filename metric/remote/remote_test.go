package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/metric/promapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is the server's own remote write receiver. It can be away, and it keeps what it gets as text.
type receiver struct {
	api *promapi.API

	mu     sync.Mutex
	lines  []string
	status int           // what it answers instead of taking samples; 0 takes them
	header http.Header   // sent with status
	delay  time.Duration // before it answers
	seen   []*http.Request
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	rc := &receiver{}
	api, err := promapi.New(promapi.Options{
		Queryable: func(*http.Request) (storage.Queryable, error) { return nil, errors.New("not used") },
		Writer:    func(*http.Request) (promapi.Writer, error) { return rc, nil },
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	rc.api = api
	return rc
}

func (rc *receiver) Add(name []byte, milli int64, v float64) error {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.lines = append(rc.lines, fmt.Sprintf("%s %v %d", name, v, milli))
	return nil
}

func (rc *receiver) Flush() error { return nil }

func (rc *receiver) answer(status int, header http.Header) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.status, rc.header = status, header
}

func (rc *receiver) got() []string {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return slices.Clone(rc.lines)
}

// ServeHTTP serves real connections.
func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc.mu.Lock()
	status, header := rc.status, rc.header
	rc.seen = append(rc.seen, r)
	rc.mu.Unlock()
	if status > 0 {
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		http.Error(w, "not now", status)
		return
	}
	rc.api.ServeHTTP(w, r)
}

// RoundTrip serves a client without a network, for tests with a false clock.
func (rc *receiver) RoundTrip(r *http.Request) (*http.Response, error) {
	rc.mu.Lock()
	delay, status := rc.delay, rc.status
	rc.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if status < 0 {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	rc.ServeHTTP(w, r)
	return w.Result(), nil
}

// memory is an Overflow in memory.
type memory struct {
	mu      sync.Mutex
	records [][]byte
	fail    error
}

func (m *memory) Append(record []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		m.records = append(m.records, bytes.Clone(record))
	}
	return m.fail
}

func (m *memory) Next() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.records) == 0 {
		return nil, io.EOF
	}
	return m.records[0], nil
}

func (m *memory) Done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = m.records[1:]
}

func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// start returns a Sender whose requests go to rc without a network.
func start(t *testing.T, rc *receiver, change func(*Options)) *Sender {
	t.Helper()
	o := Options{Name: "test", URL: "http://receiver/api/v1/write", Log: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), Shards: 1, transport: rc}
	change(&o)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *Sender) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

func dropped(s *Sender, reason string) float64 {
	return testutil.ToFloat64(s.metrics.dropped.WithLabelValues(reason))
}

// TestOverTheNetwork sends through a real connection, with everything that a request has.
func TestOverTheNetwork(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t)
	server := httptest.NewServer(rc)
	defer server.Close()
	s, err := New(Options{Name: "mimir", URL: server.URL + "/api/v1/write", Log: slog.New(slog.DiscardHandler),
		Headers:  map[string]string{"X-Scope-OrgID": "team", "Host": "other.example.com"},
		Username: "u", PasswordFile: secret(t, " p\n"),
		Labels: map[string]string{"cluster": "c1", "dc": "never"}, Match: `^a\.|;`})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	s.Add([]byte("a.b.c"), 1_700_000_000_000, 60.2)
	s.Add([]byte("b.c"), 1_700_000_000_000, 1)
	s.Add([]byte("disk.used;dc=dc1;host=a%3Bb"), 1_700_000_001_000, -1)
	stop(t, s)
	got := rc.got()
	slices.Sort(got)
	if want := []string{"a.b.c;cluster=c1;dc=never 60.2 1700000000000",
		"disk.used;cluster=c1;dc=dc1;host=a%3Bb -1 1700000001000"}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	r := rc.seen[0]
	user, password, _ := r.BasicAuth()
	if r.Header.Get("X-Scope-OrgID") != "team" || r.Host != "other.example.com" || user != "u" || password != "p" ||
		r.Header.Get("X-Prometheus-Remote-Write-Version") != "0.1.0" {
		t.Errorf("headers %v, host %s", r.Header, r.Host)
	}
}

// TestBatches checks when a batch leaves: by its number of samples, or by its age.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := newReceiver(t)
		s := start(t, rc, func(o *Options) { o.BatchSamples = 3; o.BearerTokenFile = secret(t, "secret") })
		for i := range 4 {
			s.Add([]byte("m"), int64(i), 1)
		}
		synctest.Wait()
		if got := len(rc.got()); got != 3 {
			t.Errorf("%d samples at once; want 3", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := len(rc.got()); got != 4 {
			t.Errorf("%d samples after the delay; want 4", got)
		}
		if got := rc.seen[0].Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("authorization %q", got)
		}
		stop(t, s)
		s.Add([]byte("m"), 5, 1)
		if got := dropped(s, "stopped"); got != 1 {
			t.Errorf("%v samples dropped after the stop; want 1", got)
		}
	})
}

// TestRetry has a receiver that is away, then busy, then asks for patience, then takes the batch.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := newReceiver(t)
		rc.answer(-1, nil)
		s := start(t, rc, func(o *Options) { o.BatchSamples = 1 })
		s.Add([]byte("m"), 1, 1)
		s.Add([]byte("m"), 2, 1)
		time.Sleep(10 * time.Second)
		rc.answer(503, nil)
		time.Sleep(10 * time.Second)
		rc.answer(302, nil)
		time.Sleep(time.Minute)
		rc.answer(429, http.Header{"Retry-After": {"120"}})
		time.Sleep(time.Minute)
		rc.mu.Lock()
		before := len(rc.seen)
		rc.mu.Unlock()
		rc.answer(0, nil)
		time.Sleep(30 * time.Second)
		if got := rc.got(); len(got) > 0 {
			t.Errorf("the sender did not wait: %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := rc.got(), []string{"m 1 1", "m 1 2"}; !slices.Equal(got, want) {
			t.Errorf("got %q; want %q", got, want)
		}
		if before > 15 {
			t.Errorf("%d requests in 140 s: the waits do not grow", before)
		}
		stop(t, s)
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := newReceiver(t)
		rc.answer(400, nil)
		s := start(t, rc, func(o *Options) { o.BatchSamples = 2 })
		s.Add([]byte("m"), 1, 1)
		s.Add([]byte("m"), 2, 1)
		synctest.Wait()
		rc.answer(0, nil)
		s.Add([]byte("m"), 3, 1)
		stop(t, s)
		if got, want := rc.got(), []string{"m 1 3"}; !slices.Equal(got, want) || dropped(s, "refused") != 2 {
			t.Errorf("got %q, %v dropped; want %q and 2", got, dropped(s, "refused"), want)
		}
	})
}

// TestFull checks that batches are dropped if there is no room and no overflow, and that Add does not wait.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := newReceiver(t)
		rc.answer(500, nil)
		s := start(t, rc, func(o *Options) { o.BatchSamples = 1; o.QueueBytes = 100 })
		for i := range 10 {
			s.Add([]byte("m"), int64(i), 1)
		}
		lost := dropped(s, "full")
		if lost == 0 || lost == 10 {
			t.Errorf("%v samples dropped", lost)
		}
		rc.answer(0, nil)
		stop(t, s)
		if got := len(rc.got()); got+int(lost) != 10 {
			t.Errorf("%d samples arrived and %v were dropped; want 10 together", got, lost)
		}
	})
}

// TestOverflow checks the order of samples that go through memory and overflow, over an outage and a restart.
func TestOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := newReceiver(t)
		disk := &memory{}
		s := start(t, rc, func(o *Options) { o.BatchSamples = 1; o.QueueBytes = 200; o.Overflow = disk })
		synctest.Wait() // It sees that the overflow is empty.
		var want []string
		n := 0
		add := func(count int) {
			for range count {
				s.Add([]byte("m"), int64(n), 1)
				want = append(want, fmt.Sprintf("m 1 %d", n))
				n++
			}
		}
		add(3)
		synctest.Wait()
		if got := disk.len(); got != 0 {
			t.Errorf("%d records in the overflow without an outage", got)
		}
		rc.answer(503, nil)
		add(50)
		if got := disk.len(); got < 40 || got > 49 {
			t.Errorf("%d records in the overflow; want most of 50, and some in memory", got)
		}
		time.Sleep(time.Minute)
		rc.answer(0, nil)
		rc.mu.Lock()
		rc.delay = 10 * time.Millisecond
		rc.mu.Unlock()
		time.Sleep(30*time.Second + 100*time.Millisecond)
		add(5) // while the overflow is drained, or just after
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := rc.got(); !slices.Equal(got, want) {
			t.Errorf("got %q; want %q", got, want)
		}
		if got := disk.len(); got != 0 {
			t.Errorf("%d records are left in the overflow", got)
		}
		rc.mu.Lock()
		rc.delay = 0
		rc.mu.Unlock()
		add(1)
		synctest.Wait()
		if got := rc.got(); !slices.Equal(got, want) {
			t.Error("the memory is not used again")
		}

		// An outage over a restart.
		rc.answer(-1, nil)
		add(10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		if got := disk.len(); got != 10 {
			t.Errorf("%d records in the overflow after the stop; want 10", got)
		}
		rc.answer(0, nil)
		s = start(t, rc, func(o *Options) { o.Overflow = disk; o.BatchSamples = 1 })
		add(3)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := rc.got()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("after the restart: got %q; want %q", got, want)
		}
		stop(t, s)
	})
}

// TestAge has samples wait in memory, on disk and over a restart.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := newReceiver(t)
		disk := &memory{}
		want := func(s *Sender, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := s.age().Round(time.Second); got != want {
				t.Errorf("the oldest sample has waited for %v, want %v", got, want)
			}
		}
		change := func(o *Options) {
			o.BatchSamples, o.QueueBytes, o.Overflow, o.MaxDelay, o.MaxBackoff = 2, 60, disk, time.Hour, time.Second
		}
		s := start(t, rc, change)
		add := func() { s.Add([]byte("m"), 1, 1) }
		want(s, 0)
		add()
		time.Sleep(10 * time.Second)
		want(s, 10*time.Second) // in a batch that is not full
		rc.answer(503, nil)
		add()
		time.Sleep(10 * time.Second)
		want(s, 20*time.Second) // in memory
		for range 8 {
			add()
		}
		if disk.len() == 0 {
			t.Fatal("nothing is on disk")
		}
		time.Sleep(10 * time.Second)
		want(s, 30*time.Second) // what is on disk is newer
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		s = start(t, rc, change)
		time.Sleep(time.Second)
		want(s, 71*time.Second) // the oldest record of the disk
		rc.answer(0, nil)
		time.Sleep(10 * time.Second)
		want(s, 0)
		families, err := s.o.Registerer.(*prometheus.Registry).Gather()
		if err != nil || !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "lapwing_metric_remote_queue_age_seconds" && f.GetMetric()[0].GetGauge().GetValue() == 0
		}) {
			t.Errorf("the metrics are %v, %v", families, err)
		}
		stop(t, s)
	})
}

func TestRecords(t *testing.T) {
	t.Parallel()
	whole := &batch{compress([]byte("x")), 7, time.UnixMilli(1_700_000_000_123)}
	b, err := readRecord(whole.record())
	if err != nil || b.samples != 7 || !bytes.Equal(b.body, whole.body) || !b.since.Equal(whole.since) {
		t.Errorf("got %+v, %v", b, err)
	}
	for _, record := range [][]byte{nil, {1}, {1, 0}, {1, 1}, {1, 1, 0xff}, append([]byte{1, 0}, whole.body...)} {
		if b, err := readRecord(record); err == nil {
			t.Errorf("%x is read as %+v", record, b)
		}
	}
}

func TestOverflowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := newReceiver(t)
		rc.answer(503, nil)
		disk := &memory{}
		s := start(t, rc, func(o *Options) { o.BatchSamples = 1; o.QueueBytes = 1; o.Overflow = disk })
		disk.mu.Lock()
		disk.fail = errors.New("disk full")
		disk.mu.Unlock()
		s.Add([]byte("m"), 1, 1)
		if got := dropped(s, "overflow"); got != 1 {
			t.Errorf("%v dropped; want 1", got)
		}
		disk.mu.Lock()
		disk.fail = nil
		disk.records = [][]byte{{}, {1, 0xff}, bytes.Repeat([]byte{0xff}, 12)} // damaged records
		disk.mu.Unlock()
		rc.answer(0, nil)
		s.Add([]byte("m"), 2, 1)
		synctest.Wait()
		if got := testutil.ToFloat64(s.metrics.damaged); got != 3 || !slices.Equal(rc.got(), []string{"m 1 2"}) {
			t.Errorf("%v damaged records, got %q", got, rc.got())
		}
		stop(t, s)
	})
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Name: "x", URL: "http://localhost/", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.Add([]byte("m"), 1, 1)
	if err := s.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "1 samples were not sent") {
		t.Errorf("%v; want an error", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Start(); err == nil {
		t.Error("it can be started after the stop")
	}
	if got := dropped(s, "stopped"); got != 1 {
		t.Errorf("%v dropped; want 1", got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := Options{Name: "x", URL: "http://localhost/", Log: slog.New(slog.DiscardHandler)}
	for want, change := range map[string]func(*Options){
		"no Name":          func(o *Options) { o.Name = "" },
		"no Log":           func(o *Options) { o.Log = nil },
		"not like https":   func(o *Options) { o.URL = "localhost:9090" },
		"cannot be read":   func(o *Options) { o.URL = "http://u:topsecret@[" },
		"give the user":    func(o *Options) { o.URL = "http://u:topsecret@localhost/" },
		"use one of them":  func(o *Options) { o.Username, o.BearerTokenFile = "u", "b" },
		"come together":    func(o *Options) { o.Username = "u" },
		"neither a colon":  func(o *Options) { o.Username, o.PasswordFile = "u:v", "p" },
		"are for https":    func(o *Options) { o.CAFile = "ca" },
		"no name":          func(o *Options) { o.Headers = map[string]string{"a b": "topsecret"} },
		"set by":           func(o *Options) { o.Headers = map[string]string{"content-type": "x"} },
		"control":          func(o *Options) { o.Headers = map[string]string{"A": "top\nsecret"} },
		"HeaderFiles":      func(o *Options) { o.Headers = map[string]string{"authorization": "topsecret"} },
		"header A is":      func(o *Options) { o.Headers = map[string]string{"a": "1", "A": "topsecret"} },
		"Authorization is": func(o *Options) { o.BearerTokenFile, o.HeaderFiles = "f", map[string]string{"Authorization": "f"} },
		"the limit is":     func(o *Options) { o.HeaderFiles = manyHeaders() },
		"bearer token: ":   func(o *Options) { o.BearerTokenFile = filepath.Join(t.TempDir(), "none") },
		"is empty":         func(o *Options) { o.Username, o.PasswordFile = "u", secret(t, " \n") },
		"line break":       func(o *Options) { o.HeaderFiles = map[string]string{"A": secret(t, "topsecret\nb")} },
		"TLS file":         func(o *Options) { o.URL, o.CAFile = "https://localhost/", filepath.Join(t.TempDir(), "none") },
		"FilesEvery":       func(o *Options) { o.FilesEvery = -1 },
		"Shards":           func(o *Options) { o.Shards = -1 },
		"BatchSamples":     func(o *Options) { o.BatchSamples = 1_000_000 },
		"QueueBytes":       func(o *Options) { o.QueueBytes = -1 },
		"MaxDelay":         func(o *Options) { o.MaxDelay = -1 },
		"Match":            func(o *Options) { o.Match = "(" },
	} {
		o := good
		change(&o)
		_, err := New(o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v; want %q and no secret", err, want)
		}
		if o.Log != nil && fmt.Sprint(o.Check()) != fmt.Sprint(err) {
			t.Errorf("Check: %v; New: %v", o.Check(), err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		sanitize bool
		want     string
	}{
		{"a.b.c", false, `__name__="a.b.c"`},
		{"a.b.c", true, `__name__="a_b_c"`},
		{"1.b:é", true, `__name__="_1_b:_"`},
		{"up;1.x=2;job=a.b", true, `_1_x="2" __name__="up" job="a.b"`},
		{"m;a.b=1;a_b=2", true, `__name__="m" a_b="2"`},
		{"m;z=1;B=2;a1=3;a=4", false, `B="2" __name__="m" a="4" a1="3" z="1"`},
		{"m;exported_name=x", false, `__name__="m" name="x"`},
	} {
		var n names
		n.init(Options{Sanitize: c.sanitize})
		for range 2 {
			request := appendSeries(nil, n.labels([]byte(c.name)), -1, 1.5)
			var r prompb.WriteRequest
			if err := r.Unmarshal(request); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range r.Timeseries[0].Labels {
				got = append(got, fmt.Sprintf("%s=%q", l.Name, l.Value))
			}
			if s := r.Timeseries[0].Samples; len(s) != 1 || s[0].Timestamp != -1 || s[0].Value != 1.5 {
				t.Errorf("%s: samples %v", c.name, s)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s: %s; want %s", c.name, strings.Join(got, " "), c.want)
			}
		}
	}
}

func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	var n names
	n.init(Options{})
	for i := range maxNames + 10 {
		n.labels(fmt.Appendf(nil, "m.%d", i))
	}
	if len(n.encoded) != 10 {
		t.Errorf("%d names are remembered; want 10", len(n.encoded))
	}
}

func TestReadRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for text, want := range map[string]time.Duration{
			"": 0, "x": 0, "-1": 0, "0": 0, "7": 7 * time.Second, "99999999999": 0,
			time.Now().Add(time.Minute).UTC().Format(http.TimeFormat):  time.Minute,
			time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat): 0,
		} {
			if got := readRetryAfter(text); got != want {
				t.Errorf("%q: %v; want %v", text, got, want)
			}
		}
	})
}

// FuzzSeries checks that any sample of any name is a request that the receiver's types can read.
func FuzzSeries(f *testing.F) {
	f.Add("a.b;k=v", int64(1_700_000_000_000), 1.5, true)
	f.Add(";=\xff", int64(-1), 0.0, false)
	f.Fuzz(func(t *testing.T, name string, milli int64, v float64, sanitized bool) {
		var n names
		n.init(Options{Sanitize: sanitized, Labels: map[string]string{"dc": "1"}})
		b := &batch{compress(appendSeries(nil, n.labels([]byte(name)), milli, v)), 1, time.UnixMilli(milli)}
		back, err := readRecord(b.record())
		if err != nil || back.samples != 1 || back.since.UnixMilli() != max(0, milli) {
			t.Fatal(err)
		}
		plain, err := snappy.Decode(nil, back.body)
		if err != nil {
			t.Fatal(err)
		}
		var r prompb.WriteRequest
		if err := r.Unmarshal(plain); err != nil {
			t.Fatal(err)
		}
		if len(r.Timeseries) != 1 || len(r.Timeseries[0].Samples) != 1 || r.Timeseries[0].Samples[0].Timestamp != milli {
			t.Fatalf("%q: %v", name, r)
		}
		ls := r.Timeseries[0].Labels
		if !slices.IsSortedFunc(ls, func(a, b prompb.Label) int { return strings.Compare(a.Name, b.Name) }) {
			t.Fatalf("%q: labels are not sorted: %v", name, ls)
		}
	})
}

// BenchmarkAdd is the cost of a sample in the intake, with its share of the compression.
func BenchmarkAdd(b *testing.B) {
	s, err := New(Options{Name: "x", URL: "http://localhost/", Log: slog.New(slog.DiscardHandler), QueueBytes: 1})
	if err != nil {
		b.Fatal(err)
	}
	var all [][]byte
	for i := range 10_000 {
		all = append(all, fmt.Appendf(nil, "servers.host-%d.cpu.total.idle", i))
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		s.Add(all[i%len(all)], int64(1_700_000_000_000+i), float64(i))
		i++
	}
}
