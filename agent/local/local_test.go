package local

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestMain(m *testing.M) {
	// The server waits a moment for the client whose request was too large.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// sent are the events that a server forwarded.
type sent struct {
	mu     sync.Mutex
	events []*resource.Event
	more   chan struct{}
}

func (s *sent) send(ev *resource.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, ev)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// wait returns event n, counted from 1.
func (s *sent) wait(t *testing.T, n int) *resource.Event {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		s.mu.Lock()
		if len(s.events) >= n {
			defer s.mu.Unlock()
			return s.events[n-1]
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("no event %d", n)
		}
	}
}

func options(s *sent) Options {
	return Options{
		Agent: "web-1", Namespace: "default", Version: "1.2.3", Send: s.send, Connected: func() bool { return true },
		Entity: func() *resource.Entity {
			return &resource.Entity{Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default"}, EntityClass: resource.EntityAgentClass}
		},
	}
}

func start(t *testing.T, change func(*Options)) (*Server, *sent) {
	t.Helper()
	s := &sent{more: make(chan struct{}, 1)}
	opts := options(s)
	opts.APIAddress, opts.SocketAddress, opts.StatsDAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	if change != nil {
		change(&opts)
	}
	server, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server, s
}

// call makes a request and returns status and body.
func call(t *testing.T, server *Server, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+server.APIAddr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestAPI(t *testing.T) {
	registry := prometheus.NewRegistry()
	var connected atomic.Bool
	connected.Store(true)
	server, got := start(t, func(o *Options) {
		o.Connected = connected.Load
		o.Gatherer, o.Registerer = registry, registry
	})
	for _, tt := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/version", "", 200, `{"version":"1.2.3"}`},
		{"GET", "/metrics", "", 200, "lapwing_agent_local_events_total"},
		{"GET", "/brokers", "", 404, ""},
		{"GET", "/events", "", 405, ""},
		{"POST", "/events", "{", 400, "decode event"},
		{"POST", "/events", "{}", 400, "at least check or metrics need to be instantiated for this event"},
		{"POST", "/events", `{"check":{"metadata":{"name":"not a name"}}}`, 400, "check"},
		{"POST", "/events", `{"metadata":{"name":"x"},"check":{"metadata":{"name":"c"}}}`, 400, "events cannot be named"},
		{"POST", "/events", `{"entity":{"metadata":{"name":"lapwing-backend"}},"check":{"metadata":{"name":"c"}}}`, 400, "the backend's own"},
		{"POST", "/events", `{"check":{"metadata":{"name":"c"},"proxy_entity_name":"lapwing-backend"}}`, 400, "the backend's own"},
		{"POST", "/events", `{"entity":{"metadata":{"name":"other"}},"metrics":{"points":[]}}`, 400, `"other"`},
		{"POST", "/events", `{"check":{"metadata":{"name":"c"},"output":"` + strings.Repeat("x", maxEvent) + `"}}`, 413, "too large"},
		{"POST", "/events", `{"check":{"metadata":{"name":"c"},"status":1,"output":"o"}}`, 202, ""},
		{"POST", "/events", `{"timestamp":5,"entity":{"metadata":{"name":"router"}},"check":{"metadata":{"name":"c","namespace":"default"},"interval":30,"executed":4}}`, 202, ""},
		{"POST", "/events", `{"metrics":{"points":[{"name":"a","value":1,"timestamp":2}]}}`, 202, ""},
	} {
		if status, answer := call(t, server, tt.method, tt.path, tt.body); status != tt.status || !strings.Contains(answer, tt.answer) {
			t.Errorf("%s %s %.80s: %d %q, want %d %q", tt.method, tt.path, tt.body, status, answer, tt.status, tt.answer)
		}
	}
	ev := got.wait(t, 3)
	if ev.Check != nil || len(ev.Metrics.Points) != 1 || ev.Entity.Metadata.Name != "web-1" {
		t.Errorf("metrics: %+v", ev)
	}
	ev = got.wait(t, 1)
	if c := ev.Check; c.Status != 1 || c.Interval != 1 || c.Executed == 0 || c.ProcessedBy != "web-1" || c.ProxyEntityName != "" || ev.Timestamp == 0 || len(ev.ID) != 16 || ev.Metadata.Namespace != "default" {
		t.Errorf("check: %+v, %+v", ev, c)
	}
	ev = got.wait(t, 2)
	if c := ev.Check; c.ProxyEntityName != "router" || c.Interval != 30 || c.Executed != 4 || ev.Timestamp != 5 || ev.Entity.Metadata.Name != "web-1" {
		t.Errorf("of another entity: %+v, %+v", ev, c)
	}
	connected.Store(false)
	if status, answer := call(t, server, "GET", "/healthz", ""); status != 503 || answer != "sensu backend unavailable\n" {
		t.Errorf("without a backend: %d %q", status, answer)
	}
}

func TestAPIRate(t *testing.T) {
	server, got := start(t, func(o *Options) { o.Rate, o.Burst = 0.001, 2 })
	event := `{"check":{"metadata":{"name":"c"}}}`
	for i, want := range []int{202, 202, 429} {
		if status, _ := call(t, server, "POST", "/events", event); status != want {
			t.Errorf("event %d: %d, want %d", i, status, want)
		}
	}
	got.wait(t, 2)
}

func TestSockets(t *testing.T) {
	server, got := start(t, nil)
	tcp := func(half bool, parts ...string) string {
		t.Helper()
		conn, err := net.Dial("tcp", server.SocketAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, p := range parts {
			if _, err := io.WriteString(conn, p); err != nil {
				t.Fatal(err)
			}
		}
		if half {
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(conn) // it may be reset
		return string(b)
	}
	full := `{"name":"backup","output":"done","status":2,"source":"db 1","handlers":["mail"],"ttl":5}`
	for _, tt := range []struct {
		name  string
		half  bool
		parts []string
		want  string
	}{
		{"kept open", false, []string{`{"name":"a",`, `"output":"b"}`}, "ok"},
		{"half closed", true, []string{`{"name":"a","output":"b","handler":"h","source":"web-1"}` + "\n"}, "ok"},
		{"ping", false, []string{" ping\n"}, "pong"},
		{"no JSON", true, []string{"hello"}, "invalid"},
		{"cut", true, []string{`{"name":"a"`}, "invalid"},
		{"no result", false, []string{`[1]`}, "invalid"},
		{"no output", false, []string{`{"name":"a"}`}, ""},
		{"not a name", false, []string{full}, "invalid"},
		{"nothing", true, nil, ""},
		{"ping in pieces", false, []string{"\n pi", "ng"}, "pong"},
		{"two values", false, []string{`{"name":"a","output":"b"} {}`}, "invalid"},
		{"no JSON, kept open", false, []string{"hello"}, "invalid"},
	} {
		if answer := tcp(tt.half, tt.parts...); answer != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, answer, tt.want)
		}
	}
	if ev := got.wait(t, 2); ev.Check.ProxyEntityName != "" || len(ev.Check.Handlers) != 1 || ev.Check.Handlers[0] != "h" || ev.Check.Output != "b" || ev.Check.Interval != 1 {
		t.Errorf("got %+v", ev.Check)
	}
	udp, err := net.Dial("udp", server.SocketAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, datagram := range []string{" ping ", "", "junk", strings.Replace(full, "db 1", "db-1", 1)} {
		if _, err := io.WriteString(udp, datagram); err != nil {
			t.Fatal(err)
		}
	}
	if c := got.wait(t, 3).Check; c.ProxyEntityName != "db-1" || c.Status != 2 || c.Metadata.Name != "backup" || c.Metadata.Namespace != "default" {
		t.Errorf("got %+v", c)
	}
}

func TestAddressInUse(t *testing.T) {
	server, _ := start(t, nil)
	for name, change := range map[string]func(*Options){
		"API":    func(o *Options) { o.APIAddress = server.APIAddr().String() },
		"socket": func(o *Options) { o.SocketAddress = server.SocketAddr().String() },
		"StatsD": func(o *Options) { o.StatsDAddress = server.StatsDAddr().String() },
	} {
		opts := options(new(sent))
		change(&opts)
		var s *Server
		var err error
		if name != "API" {
			opts.APIAddress = "127.0.0.1:0"
		}
		if s, err = New(opts); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s: %v", name, err)
		}
		if name != "API" {
			if status, _ := call(t, s, "GET", "/healthz", ""); status != 200 {
				t.Errorf("%s: the API does not answer: %d", name, status)
			}
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestStatsD(t *testing.T) {
	clock := time.Unix(1000, 0)
	d := newStatsD(8, func() time.Time { return clock })
	add := func(lines ...string) {
		t.Helper()
		for _, line := range lines {
			p, err := parseSample(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if !d.add(&p, "127.0.0.1") {
				t.Fatalf("%s: no room", line)
			}
		}
	}
	flush := func() map[string]float64 {
		t.Helper()
		clock = clock.Add(10 * time.Second)
		m := map[string]float64{}
		for _, p := range d.flush() {
			name := p.Name
			for _, tag := range p.Tags {
				if tag.Name != "s" {
					name += ";" + tag.Name + "=" + tag.Value
				}
			}
			m[name] = p.Value
			if p.Timestamp != clock.UnixNano() || p.Tags[len(p.Tags)-1] != (resource.MetricTag{Name: "s", Value: "127.0.0.1"}) {
				t.Errorf("got %+v", p)
			}
		}
		return m
	}
	want := func(got, want map[string]float64) {
		t.Helper()
		for name, v := range want {
			if g, ok := got[name]; !ok || math.Abs(g-v) > 1e-9 {
				t.Errorf("%s is %v (%v), want %v", name, g, ok, v)
			}
		}
		if len(got) != len(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	add("hits:3|c", "hits:1|c|@0.4", "hits:2|c|#b:2,a:1:x,flag", "load avg/1€:+2.5|g", "load avg/1€:-1|g", "who:ann|s", "who:bob|s", "who:ann|s")
	want(flush(), map[string]float64{
		"hits.value": 5, "hits.per_second": 0.5, // 5.5 without its fraction
		"hits.value;a=1:x;b=2;flag=": 2, "hits.per_second;a=1:x;b=2;flag=": 0.2,
		"load_avg-1.value": -1, "who.value": 2,
	})
	want(flush(), map[string]float64{
		"hits.value": 0, "hits.per_second": 0, "hits.value;a=1:x;b=2;flag=": 0, "hits.per_second;a=1:x;b=2;flag=": 0, "load_avg-1.value": -1, "who.value": 0,
	})
	clock = clock.Add(forgetSeries)
	want(flush(), map[string]float64{})
	for i := 1; i <= 10; i++ {
		add(fmt.Sprintf("t:%d|ms", i))
	}
	add("one:4|h|@0.5")
	want(flush(), map[string]float64{
		"t.min": 1, "t.max": 10, "t.count": 10, "t.per_second": 1, "t.mean": 5.5, "t.median": 5.5, "t.stddev": math.Sqrt(8.25), "t.sum": 55, "t.sum_squares": 385,
		"t.percentile_count_90": 9, "t.percentile_mean_90": 5, "t.percentile_sum_90": 45, "t.percentile_sum_squares_90": 285, "t.percentile_upper_90": 9,
		"one.min": 4, "one.max": 4, "one.count": 2, "one.per_second": 0.2, "one.mean": 4, "one.median": 4, "one.stddev": 0, "one.sum": 4, "one.sum_squares": 16,
		"one.percentile_count_90": 1, "one.percentile_mean_90": 4, "one.percentile_sum_90": 4, "one.percentile_sum_squares_90": 16, "one.percentile_upper_90": 4,
	})
	for i := range 6 {
		add(fmt.Sprintf("more%d:1|c", i))
	}
	p, _ := parseSample("toomuch:1|c")
	if d.add(&p, "127.0.0.1") {
		t.Error("there is no bound")
	}
	for _, line := range []string{"", "a", "a:1", "a:|c", ":1|c", "€:1|c", "a:x|c", "a:NaN|g", "a:1|x", "a:1|c|@0", "a:1|c|@x", "_e{1,2}:a|bc"} {
		if _, err := parseSample(line); err == nil {
			t.Errorf("%q is understood", line)
		}
	}
}

func TestStatsDIsSent(t *testing.T) {
	server, got := start(t, func(o *Options) { o.StatsDFlush, o.StatsDHandlers = 10*time.Millisecond, []string{"graphite"} })
	udp, err := net.Dial("udp", server.StatsDAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := io.WriteString(udp, "bad\n\na:1|c\nb:2|g\n"); err != nil {
		t.Fatal(err)
	}
	ev := got.wait(t, 1)
	if ev.Check != nil || ev.Entity.Metadata.Name != "web-1" || ev.Timestamp == 0 || len(ev.ID) != 0 || len(ev.Metrics.Handlers) != 1 || len(ev.Metrics.Points) != 3 || ev.Metrics.Points[2].Name != "b.value" {
		t.Errorf("got %+v", ev)
	}
}

// TestClientThatSaysNothing: a silent client is disconnected in time and does not keep others out.
func TestClientThatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := options(new(sent))
		s, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		client, conn := net.Pipe()
		begin := time.Now()
		go func() {
			defer conn.Close()
			s.serveSocket(conn)
		}()
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("there was an answer to nothing")
		}
		if took := time.Since(begin); took != patience {
			t.Errorf("let go after %v", took)
		}
	})
}

func FuzzSample(f *testing.F) {
	for _, line := range []string{"a:1|c", "a.b:1.5|ms|@0.1|#t:v,w", "x:y|s", "g:-1e3|g", ":|", "a:1|c|@|#"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		p, err := parseSample(line)
		if err != nil {
			return
		}
		if p.name == "" || p.name != cleanName(p.name) || !(p.rate > 0) || p.kind != set && (math.IsNaN(p.value) || math.IsInf(p.value, 0)) {
			t.Errorf("%q gives %+v", line, p)
		}
		d := newStatsD(10, time.Now)
		d.add(&p, "::1")
		d.flush()
	})
}

// TestStatsDIsBounded sends members, values and names that would fill the memory.
func TestStatsDIsBounded(t *testing.T) {
	d := newStatsD(1000, time.Now)
	take := func(line string) bool {
		p, err := parseSample(line)
		return err == nil && d.add(&p, "127.0.0.1")
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	long := strings.Repeat("x", 60_000)
	for i := range 2000 { // 120 MB if they were kept as they came
		if !take(fmt.Sprintf("users:%d%s|s", i, long)) {
			t.Fatal("a member is refused")
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("2,000 long members of a set take %d bytes", grown)
	}
	if take(long+":1|c") || take("a:1|c|#"+long) {
		t.Error("a name or tag of 60,000 bytes is taken")
	}
	refused := 0
	for i := range 120 { // timers with 20% more values than the total limit
		for v := range maxValues {
			if !take(fmt.Sprintf("t%d:%d|ms", i, v)) {
				refused++
			}
		}
	}
	if want := 120*maxValues + 2000 - maxAllValues; refused != want || d.kept != maxAllValues {
		t.Errorf("%d values are kept, %d refused, want %d refused", d.kept, refused, want)
	}
	if d.flush(); d.kept != 0 || !take("users:a|s") {
		t.Error("a flush makes no room")
	}
}

// dribble is a client's connection on which a byte comes at a time.
type dribble struct {
	net.Conn
	from   io.Reader
	answer strings.Builder
}

func (d *dribble) Read(b []byte) (int, error)      { return d.from.Read(b) }
func (d *dribble) Write(b []byte) (int, error)     { return d.answer.Write(b) }
func (d *dribble) SetDeadline(time.Time) error     { return nil }
func (d *dribble) SetReadDeadline(time.Time) error { return nil }

// TestSocketInPieces sends a result of almost a megabyte byte by byte. Reading all of it again for each byte would be
// half a million million steps; reading each byte once takes a moment.
func TestSocketInPieces(t *testing.T) {
	server, s := start(t, nil)
	client := &dribble{from: iotest.OneByteReader(strings.NewReader(`{"name":"a","output":"` + strings.Repeat("b", 1_000_000) + `"}`))}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.serveSocket(client)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it is still reading")
	}
	if got := client.answer.String(); got != "ok" {
		t.Errorf("it answers %q", got)
	}
	s.wait(t, 1)
}

// BenchmarkSocketPieces reads a result of 256 KiB that comes byte by byte: a new byte must not cost reading all bytes
// before it.
func BenchmarkSocketPieces(b *testing.B) {
	text := `{"name":"a","output":"` + strings.Repeat("b", 256<<10) + `"}`
	for b.Loop() {
		if _, err := readResult(iotest.OneByteReader(strings.NewReader(text))); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"name":"a","output":"b","status":1,"handlers":["c"],"source":"d"}`))
	f.Add([]byte(`{"name":"a","output":"b","interval":-1}`))
	f.Add([]byte(`null`))
	s, err := New(options(new(sent)))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ev, err := s.event(b)
		if err == nil && (ev.Check.Metadata.Name == "" || ev.Entity.Metadata.Name != "web-1") {
			t.Errorf("%q gives %+v", b, ev)
		}
	})
}
