package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/rpc"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
	"github.com/lapwing-monitoring/lapwing/wire"
)

func TestDistribution(t *testing.T) {
	for name, tc := range map[string]struct {
		count           map[uint32]uint32
		agents          int
		low, high       float64
		mean, deviation float64
		bins            []int
		width           float64
	}{
		"none":      {},
		"all alike": {map[uint32]uint32{7: 3}, 3, 7, 7, 7, 0, []int{3}, 1},
		"each bin": {
			map[uint32]uint32{100: 1, 110: 2, 119: 1, 120: 1, 150: 5, 199: 1, 200: 1}, 12, 100, 200, 142.33333, 31.30051,
			[]int{3, 2, 0, 0, 5, 0, 0, 0, 0, 2}, 11,
		},
		"some without": {map[uint32]uint32{0: 1, 1: 1}, 2, 0, 1, 0.5, 0.5, []int{1, 1}, 1},
		"neighbours":   {map[uint32]uint32{240: 3, 241: 1}, 4, 240, 241, 240.25, 0.43301, []int{3, 1}, 1},
		"a bin each":   {map[uint32]uint32{0: 1, 9: 1}, 2, 0, 9, 4.5, 4.5, []int{1, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 1},
		"one more":     {map[uint32]uint32{0: 1, 10: 1}, 2, 0, 10, 5, 5, []int{1, 0, 0, 0, 0, 1}, 2},
		"beyond the highest": {
			map[uint32]uint32{0: 1, 11: 1, 21: 2}, 4, 0, 21, 13.25, 8.67107, []int{1, 0, 0, 1, 0, 0, 0, 2}, 3,
		},
	} {
		d := distribution(tc.count)
		var agents []int
		for i, b := range d.Bins {
			agents = append(agents, b.Agents)
			if want := tc.low + float64(i)*tc.width; b.From != want || b.To != want+tc.width-1 {
				t.Errorf("%s: bin %d is from %v to %v", name, i, b.From, b.To)
			}
		}
		near := math.Abs(d.Mean-tc.mean) < 1e-4 && math.Abs(d.Deviation-tc.deviation) < 1e-4
		if d.Agents != tc.agents || d.Min != tc.low || d.Max != tc.high || !near || !slices.Equal(agents, tc.bins) {
			t.Errorf("%s: got %+v, agents %v", name, d, agents)
		}
	}
}

// TestSummarizeTurns: counts are those since the beginning of the measured part, and with receipts the costs are those
// of a turn.
func TestSummarizeTurns(t *testing.T) {
	at := time.Unix(1000, 0)
	r := run{
		opts:   Options{Scenario: &scenario.Scenario{Load: scenario.Settings{Receipts: true}}},
		report: &report.Report{},
		start: Snapshot{
			First: at, Last: at, CPU: time.Second,
			Turns: TurnCounts{Received: 103, Answered: 90, Different: 88, Twice: 2},
		},
	}
	r.last = r.start
	r.summarizeTurns()
	if r.report.Turns != nil {
		t.Errorf("without turns: %+v", r.report.Turns)
	}
	r.last = Snapshot{
		First: at.Add(10 * time.Second), Last: at.Add(10 * time.Second), CPU: 3 * time.Second,
		Turns: TurnCounts{Received: 1111, Answered: 1090, Different: 1083, Twice: 7, PerAgent: map[uint32]uint32{10: 4}},
	}
	scraped := func(after time.Duration, cpu float64) *scrape {
		return &scrape{at: at.Add(after), counters: map[string]float64{metricCPU: cpu}}
	}
	r.lastSeen = scraped(11*time.Second, 16)
	r.summarize(scraped(0, 5))
	r.last.Turns.Answered += 10 // afterwards
	r.countTurns()
	got := *r.report.Turns
	want := report.Turns{
		Received: 1008, Answered: 1010, Different: 995, AnsweredTwice: 5, PerSecond: 100, Receipts: true,
		PerAgent: got.PerAgent,
	}
	if !reflect.DeepEqual(got, want) || got.PerAgent.Agents != 4 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if sum := r.report.Summary; math.Abs(*sum.BackendCPUMicros-10_000) > 0.1 || math.Abs(*sum.LoadCPUMicros-2000) > 0.1 {
		t.Errorf("a turn costs the backend %v µs, the load tool %v µs", *sum.BackendCPUMicros, *sum.LoadCPUMicros)
	}
}

// TestParts: the processes of a run share its agents, and each has a log of its own.
func TestParts(t *testing.T) {
	s := &scenario.Scenario{Agents: []scenario.Agents{{Name: "a", Count: 7}, {Name: "b", Count: 2}}}
	for processes, logs := range map[int][]string{0: {"x"}, 1: {"x"}, 3: {"x.1", "x.2", "x.3"}} {
		s.Load.Processes = processes
		r := run{opts: Options{Scenario: s, TurnLog: "x"}}
		var got []string
		next := map[string]int{"a": 1, "b": 1}
		for _, p := range r.parts() {
			got = append(got, p.TurnLog)
			for _, f := range p.Fleets {
				if f.First != next[f.BaseName] {
					t.Errorf("%d processes: agent %s-%d follows %d", processes, f.BaseName, f.First, next[f.BaseName]-1)
				}
				next[f.BaseName] += f.Count
			}
		}
		if !slices.Equal(got, logs) || next["a"] != 8 || next["b"] != 3 {
			t.Errorf("%d processes: logs %q, the next agents would be %v", processes, got, next)
		}
		r.opts.TurnLog = ""
		for _, p := range r.parts() {
			if p.TurnLog != "" {
				t.Errorf("%d processes: log %q, without a name", processes, p.TurnLog)
			}
		}
	}
}

// TestWorkerTurns: a process of its own plays turns, of several groups, and its answers come back.
func TestWorkerTurns(t *testing.T) {
	b := newFakeBackend(t)
	in, toWorker := io.Pipe()
	fromWorker, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- ServeWorker(t.Context(), in, out, slog.New(slog.DiscardHandler)) }()
	w := &remote{rpc: rpc.NewClient(pipes{fromWorker, toWorker})}

	path := filepath.Join(t.TempDir(), "turns")
	fleet := FleetOptions{
		Backends: []string{b.url()}, Protocol: ProtocolLapwing, BaseName: "a", First: 1, Count: 1,
		KeepaliveInterval: time.Hour, Receipts: true, AckDelay: time.Millisecond,
	}
	other := fleet
	other.BaseName = "b"
	if err := w.start(t.Context(), Part{Fleets: []FleetOptions{fleet, other}, TurnLog: path}); err != nil {
		t.Fatal(err)
	}
	ends := map[string]*backendEnd{}
	for range 2 {
		end := <-b.conns
		ends[end.header.Get(wire.HeaderAgentName)] = end
	}
	if err := w.begin(time.Hour); err != nil {
		t.Fatal(err)
	}
	for tick, name := range []string{"a-1", "b-1", "b-1"} {
		ends[name].ask(t, int64(tick), "a", int64(tick))
		ends[name].answers(t, 1)
	}
	var s Snapshot
	until(func() bool {
		one, err := w.snapshot()
		if err != nil {
			t.Fatal(err)
		}
		s.Turns, s.Answers = one.Turns, append(s.Answers, one.Answers...)
		return s.Turns.Answered == 3
	})
	want := TurnCounts{Received: 3, Answered: 3, PerAgent: map[uint32]uint32{1: 1, 2: 1}}
	if !reflect.DeepEqual(s.Turns, want) {
		t.Errorf("counted %+v, want %+v", s.Turns, want)
	}
	agents := map[uint32]int{}
	for _, a := range s.Answers {
		agents[a.Agent]++
	}
	if len(s.Answers) != 3 || agents[uint32(checkHash("a-1"))] != 1 || agents[uint32(checkHash("b-1"))] != 2 {
		t.Errorf("answers %v", s.Answers)
	}
	if err := errors.Join(w.rpc.Call("Worker.Stop", struct{}{}, new(struct{})), w.rpc.Close(), <-served); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if n := strings.Count(string(text), "\n"); err != nil || n != 3 {
		t.Errorf("the log has %d lines, error %v:\n%s", n, err, text)
	}
}

// fakeAPI stores nothing, and notes which checks were created.
type fakeAPI struct {
	mu     sync.Mutex // guards checks
	checks []string
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/auth"):
		_, _ = io.WriteString(w, `{"access_token":"a","refresh_token":"b","expires_at":99999999999}`)
	case r.URL.Path == "/metrics":
		_, _ = fmt.Fprintf(w, "# TYPE %[1]s counter\n%[1]s 1\n", metricCPU)
	case r.Method == http.MethodPut:
		if _, name, ok := strings.Cut(r.URL.Path, "/checks/"); ok {
			a.mu.Lock()
			a.checks = append(a.checks, name)
			a.mu.Unlock()
		}
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, `{"message":"not found","code":2}`, http.StatusNotFound)
	}
}

func (a *fakeAPI) created() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.checks)
}

// TestRunOfTurns plays a scenario against a backend that gives turns when the checks are there. The checks come after
// the agents, a part of the agents is killed, and the report says what became of the turns.
func TestRunOfTurns(t *testing.T) {
	b := newFakeBackend(t)
	api := &fakeAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var backend sync.WaitGroup
	defer backend.Wait()
	defer cancel()
	backend.Go(func() { giveTurns(ctx, b, api, 6) })

	s := &scenario.Scenario{
		Name: "lab", Run: "lab", Namespace: "default",
		Agents: []scenario.Agents{
			{Name: "lab", Count: 6, Subscriptions: []string{"a"}, Protocol: ProtocolLapwing},
			{Name: "none", Count: 0, Subscriptions: []string{"a"}, Protocol: ProtocolLapwing},
		},
		Checks: []scenario.Checks{
			{Name: "lab", Count: 1, Interval: time.Second, Subscriptions: []string{"a"}, RoundRobin: true},
		},
		Load: scenario.Settings{
			Duration: 2 * time.Second, Protocol: ProtocolLapwing, AckDelay: 20 * time.Millisecond, Receipts: true,
			KillAgents: 0.5, ChecksLast: true,
		},
	}
	s.Agents[0].Keepalive.Interval = time.Hour
	log := filepath.Join(t.TempDir(), "turns")
	r, err := Run(ctx, Options{
		Scenario: s, API: APIOptions{URL: server.URL, Username: "u", Password: "p"}, Backends: []string{b.url()},
		RetryMin: time.Second, RetryMax: time.Second, TurnLog: log, NoVerify: true, Keep: true, Progress: io.Discard,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	turns, sum := r.Turns, r.Summary
	if turns == nil || sum.Killed != 3 || sum.Connected != 6 || sum.Disconnects != 0 || sum.Errors != 0 {
		t.Fatalf("turns %+v, summary %+v", turns, sum)
	}
	none := turns.Different == 0 || turns.Answered == 0 || turns.PerSecond <= 0
	if none || turns.AnsweredTwice != 0 || turns.Answered != turns.Different || turns.PerAgent.Agents != 3 {
		t.Errorf("turns %+v", turns)
	}
	if n := r.Latencies[report.LatencyTurnArrival].Count; n == 0 || api.created() != 1 {
		t.Errorf("%d arrivals were measured of %d checks", n, api.created())
	}
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "\tlab\ta\t") {
		t.Errorf("the log is %q, error %v", text, err)
	}
	s.Agents = s.Agents[:1]
	s.Load.Duration = 0
	if _, err := Run(ctx, Options{Scenario: s}); err == nil || !strings.Contains(err.Error(), "duration") {
		t.Errorf("error %v of a run without an end that is to kill agents over it", err)
	}
	s.Load.Duration, s.Agents[0].Protocol = time.Second, ProtocolSensu
	_, err = Run(ctx, Options{Scenario: s, Backends: []string{b.url()}})
	if err == nil || !strings.Contains(err.Error(), "receipts") {
		t.Errorf("error %v of Sensu's agents that are to send receipts", err)
	}
}

// giveTurns gives turns of one check to agents, one after the other, once all agents are connected and the check
// exists.
func giveTurns(ctx context.Context, b *fakeBackend, api *fakeAPI, agents int) {
	var ends []*backendEnd
	for range agents {
		var end *backendEnd
		select {
		case end = <-b.conns:
		case <-ctx.Done():
			return
		}
		ends = append(ends, end)
		go func() {
			for {
				if _, err := end.Read(); err != nil {
					return
				}
			}
		}()
	}
	begin := time.Now().Unix()
	for n := int64(0); ctx.Err() == nil; n++ {
		if api.created() > 0 {
			_ = ends[n%int64(agents)].Write(append([]byte(wire.TypeCheckRequest+"\n"), turnRequest(begin-n, "a", begin)...))
		}
		time.Sleep(time.Millisecond) // only so that the turns do not use up the CPU
	}
}
