package load

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestRatesAreReal simulates backends that stand still and then process what has accumulated. Whenever the samples are
// taken, the rate is no higher than what the backend has folded in the time that has passed.
func TestRatesAreReal(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	look := func(asked, answered, folded, keepalives float64) *scrape {
		at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
		return &scrape{at: at(asked), done: at(answered), counters: map[string]float64{metricFolded: folded, received("keepalive"): keepalives}}
	}
	for _, tc := range []struct {
		name          string
		before, after *scrape
		rate          float64
	}{
		{"a calm minute", look(0, 0, 0, 0), look(60, 60, 601_000, 1000), 10_000},
		{"the first look waits for a minute", look(0, 60, 0, 0), look(61, 61, 610_000, 0), 10_000},
		{"the last look waits for a minute", look(0, 0, 0, 0), look(1, 61, 610_000, 0), 10_000},
		{"nothing was folded", look(0, 0, 5, 0), look(60, 60, 5, 0), 0},
		{"keepalives alone", look(0, 0, 0, 0), look(60, 60, 300, 300), 0},
	} {
		n, seconds, ok := tc.after.results(tc.before)
		if !ok || math.Abs(n/seconds-tc.rate) > 1 {
			t.Errorf("%s: %v results in %v s, want %v/s", tc.name, n, seconds, tc.rate)
		}
	}
	if _, _, ok := (&scrape{counters: map[string]float64{"sensu_go_events": 1}}).results(look(0, 0, 0, 0)); ok {
		t.Error("a backend that does not say what it has folded has folded something")
	}
}

// TestClusterFoldsEventsOnce: each member of a cluster folds all events. The sum of what they do counts an event once.
func TestClusterFoldsEventsOnce(t *testing.T) {
	var urls []string
	for i, folded := range []int{1000, 1000, 997} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "# TYPE %[1]s counter\n%[1]s %[2]d\n# TYPE %[3]s counter\n%[3]s{source=\"keepalive\"} 30\n"+
				"# TYPE %[4]s counter\n%[4]s %[5]d\n# TYPE %[6]s gauge\n%[6]s 7\n",
				metricFolded, folded, metricReceived, metricCPU, i+1, metricRSS)
		}))
		defer server.Close()
		urls = append(urls, server.URL)
	}
	seen, err := newWatcher(urls).read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := &scrape{counters: map[string]float64{}, each: []*scrape{{}, {}, {}}}
	if n, _, ok := seen.results(start); !ok || n != 999-90 {
		t.Errorf("%v results, want 909", n)
	}
	if rss := seen.gauges[metricRSS]; rss != 21 {
		t.Errorf("%v bytes, want 21", rss)
	}
	r := run{opts: Options{Metrics: urls}, lastSeen: seen}
	for i, b := range r.backends(start, 909) {
		if b.Metrics != urls[i] || math.Abs(*b.CPUMicros-float64(i+1)*1e6/909) > 0.1 || *b.RSSBytes != 7 {
			t.Errorf("backend %d: %+v", i, b)
		}
	}
}

// TestAgentsThatAreHeldUp sends to a backend that reads nothing. The load tool waits for no socket: it still answers
// snapshots, agents whose sockets take data send keepalives, and a check whose result could not be sent does not run
// again.
func TestAgentsThatAreHeldUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upgraded := make(chan net.Conn, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := ws.HTTPUpgrader{Header: http.Header{"Accept": {wire.ContentType(wire.Protobuf)}}}
		if conn, _, _, err := up.Upgrade(r, w); err == nil {
			upgraded <- conn
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	f, err := NewFleet(FleetOptions{
		Backends: []string{"ws://" + l.Addr().String()}, Protocol: ProtocolSensu, Count: 1, BaseName: "a", Namespace: "default",
		KeepaliveInterval: time.Hour, EventBytes: 1 << 20, RetryMin: time.Hour, RetryMax: time.Hour, HandshakeTimeout: time.Minute,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Stop() }()
	far := <-upgraded
	defer far.Close()
	backend := wire.NewServerConn(far, nil, 0)
	if err := backend.Write([]byte(wire.TypeEntityConfig + "\n")); err != nil {
		t.Fatal(err)
	}
	a := f.agents[0]
	ask := func(check string, issued int64) {
		t.Helper()
		q := &resource.CheckRequest{Config: &resource.CheckConfig{Metadata: resource.ObjectMeta{Name: check, Namespace: "default"},
			Interval: 1}, Issued: issued}
		frame, err := wire.Append(nil, wire.TypeCheckRequest, wire.Protobuf, q)
		if err == nil {
			err = backend.Write(frame)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Until the socket takes nothing and results of both checks wait: then neither runs.
	var created uint64
	for issued, stuck := int64(1), false; !stuck; issued++ {
		created = f.measures.created.Load()
		ask("cpu", issued)
		ask("disk", issued)
		for f.measures.created.Load()+f.measures.inProgress.Load() < uint64(2*issued) {
			runtime.Gosched()
		}
		a.mu.Lock()
		if !a.writing.IsZero() {
			a.writing = time.Now().Add(-time.Minute)
		}
		a.mu.Unlock()
		s := f.Snapshot()
		stuck = s.HeldUp == 1 && s.Created == created
	}
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if err := a.sendKeepalive(conn); err != nil { // would wait for the socket
		t.Fatal(err)
	}
	if s := f.Snapshot(); s.Created != created || s.Arrived != 1 {
		t.Errorf("%d results were made, want %d", s.Created, created)
	}
	// The backend reads again: all results arrive, each once and in order.
	next := map[string]int64{}
	keepalives := 0
	for total := int64(0); total < int64(created) || keepalives < 2; {
		msg, err := backend.Read()
		if err != nil {
			t.Fatal(err)
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			t.Fatal(err)
		}
		if typ == wire.TypeKeepalive {
			keepalives++
			continue
		}
		var ev resource.Event
		if err := ev.UnmarshalProto(payload); err != nil {
			t.Fatal(err)
		}
		name := ev.Check.Metadata.Name
		if next[name]++; ev.Sequence != next[name] {
			t.Fatalf("result %d of %s, want %d", ev.Sequence, name, next[name])
		}
		total++
	}
}

// TestChurnWhileConnecting ends connections so often that all agents are never connected at once: the run measures all
// the same.
func TestChurnWhileConnecting(t *testing.T) {
	b := testbackend.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := &scenario.Scenario{
		Name: "churn", Run: "churn", Namespace: "default",
		Agents: []scenario.Agents{{Name: "churn", Count: 40, Subscriptions: []string{"churn"}, Protocol: ProtocolSensu}},
		Load:   scenario.Settings{Duration: time.Second, Churn: 40, EventBytes: 10, Protocol: ProtocolSensu},
	}
	s.Agents[0].Keepalive.Interval, s.Agents[0].Keepalive.Warning = time.Minute, 2*time.Minute
	var progress strings.Builder
	r, err := Run(ctx, Options{
		Scenario: s, API: APIOptions{URL: "http://" + b.APIAddr().String(), Username: testbackend.User, Password: testbackend.Password},
		Backends: []string{b.URL()}, AgentUser: testbackend.AgentUser, AgentPassword: testbackend.AgentPassword,
		RetryMin: 2 * time.Second, RetryMax: 2 * time.Second, NoVerify: true, Progress: &progress, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if r.Summary.Connected != 40 || r.Seconds < 1 {
		t.Errorf("%d agents were connected, %v s were measured", r.Summary.Connected, r.Seconds)
	}
}

// TestOverloadIsTold: a run reports since when it is over a limit, and afterwards from when to when it was.
func TestOverloadIsTold(t *testing.T) {
	var o overload
	seen := func(since, skipped float64) *scrape {
		return &scrape{gauges: map[string]float64{metricOverloaded: since}, counters: map[string]float64{metricSkipped: skipped}}
	}
	want := func(text string) {
		t.Helper()
		if got := o.text(); got != text {
			t.Errorf("it says %q, want %q", got, text)
		}
	}
	o.look(5, Snapshot{}, seen(0, 10))
	want("")
	o.look(10, Snapshot{}, seen(1.8e9, 50))
	want("backend overloaded since 10 s, 40 runs skipped")
	o.look(20, Snapshot{Lag: 2 * time.Second, HeldUp: 7}, seen(1.8e9, 90))
	want("backend overloaded since 10 s, 80 runs skipped; TCP holds up 7 agents since 20 s; load tool 2s late since 20 s")
	o.look(25, Snapshot{}, nil) // the backend does not answer
	want("backend overloaded since 10 s, 80 runs skipped")
	o.look(30, Snapshot{}, seen(0, 90))
	want("")
	notes := strings.Join(o.notes(), "\n")
	for _, note := range []string{backendOver + " from second 10 to second 30", agentsHeld + " from second 20 to second 25", toolLate + " from second 20 to second 25"} {
		if !strings.Contains(notes, note) {
			t.Errorf("the notes lack %q:\n%s", note, notes)
		}
	}
}
