package load

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// backendEnd is the backend's end of an agent's connection.
type backendEnd struct {
	*wire.Conn
	header http.Header // of the handshake
	last   uint64      // sequence number of the last event that answers has read
}

// acknowledge acknowledges the events that answers has read, if there were any.
func (e *backendEnd) acknowledge(t *testing.T) {
	t.Helper()
	if e.last == 0 {
		return
	}
	if err := e.Write(wire.AppendAck(nil, e.last)); err != nil {
		t.Fatal(err)
	}
}

// fakeBackend takes agents of both protocols, and passes their connections to the test. It sends them their
// entity_config.
type fakeBackend struct {
	server *httptest.Server
	conns  chan *backendEnd
	taken  atomic.Int64
}

func newFakeBackend(t *testing.T) *fakeBackend {
	b := &fakeBackend{conns: make(chan *backendEnd, 100)}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := http.Header{"Accept": {wire.ContentType(wire.Protobuf)}}
		if protocol := r.Header.Get(wire.HeaderProtocol); protocol != "" {
			answer.Set(wire.HeaderProtocol, protocol)
		}
		conn, _, _, err := ws.HTTPUpgrader{Header: answer}.Upgrade(r, w)
		if err != nil {
			t.Errorf("upgrade: %v", err)
			return
		}
		end := &backendEnd{Conn: wire.NewServerConn(conn, nil, 1<<20), header: r.Header}
		t.Cleanup(func() { _ = end.Close(wire.CloseGoingAway, "bye") })
		b.taken.Add(1)
		_ = end.Write([]byte(wire.TypeEntityConfig + "\n"))
		b.conns <- end
	}))
	t.Cleanup(b.server.Close)
	return b
}

func (b *fakeBackend) url() string { return "ws" + strings.TrimPrefix(b.server.URL, "http") }

// start starts a fleet of agents that connect to the backend once.
func (b *fakeBackend) start(t *testing.T, opts FleetOptions) *Fleet {
	t.Helper()
	opts.Backends = []string{b.url()}
	opts.RetryMin, opts.RetryMax, opts.HandshakeTimeout = time.Millisecond, time.Millisecond, time.Minute
	f := newTestFleet(t, opts)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Stop() })
	return f
}

func (e *backendEnd) ask(t *testing.T, tick int64, subscription string, issued int64) {
	t.Helper()
	if err := e.Write(append([]byte(wire.TypeCheckRequest+"\n"), turnRequest(tick, subscription, issued)...)); err != nil {
		t.Fatal(err)
	}
}

// answers reads n answers to turns: the kind of each, and the turn. Keepalives are left out.
func (e *backendEnd) answers(t *testing.T, n int) (got []string) {
	t.Helper()
	result := func(encoded []byte) {
		var ev resource.Event
		if err := ev.UnmarshalProto(encoded); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("result of %s for %s: %s", ev.Check.Metadata.Name, ev.Check.ProxyEntityName,
			ev.Check.Metadata.Annotations[resource.TurnAnnotation]))
	}
	for len(got) < n {
		msg, err := e.Read()
		if err != nil {
			t.Fatal(err)
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			t.Fatal(err)
		}
		switch typ {
		case wire.TypeEvent:
			result(payload)
		case wire.TypeEvents:
			for events := wire.ReadEvents(payload); events.Next(); {
				if !events.Item.Keepalive {
					result(events.Item.Event)
				}
				e.last = events.Seq
			}
		case wire.TypeReceipt:
			r, err := wire.DecodeReceipt(payload)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("receipt %v of %s for %s: %s", r.Outcome, r.Check, r.Entity, r.Turn))
		}
	}
	return got
}

// TestTurnsAreAnswered: an agent answers every turn, of one check and second too, in the way and after the time of the
// options. The log has a line for each.
func TestTurnsAreAnswered(t *testing.T) {
	for name, tc := range map[string]struct {
		opts FleetOptions
		kind string
	}{
		"sensu":                          {FleetOptions{Protocol: ProtocolSensu}, "result"},
		"sensu, delayed":                 {FleetOptions{Protocol: ProtocolSensu, AckDelay: 30 * time.Millisecond}, "result"},
		"lapwing":                        {FleetOptions{}, "result"},
		"lapwing, delayed":               {FleetOptions{AckDelay: 30 * time.Millisecond}, "result"},
		"lapwing with receipts":          {FleetOptions{Receipts: true}, "receipt done"},
		"lapwing with receipts, delayed": {FleetOptions{Receipts: true, AckDelay: 30 * time.Millisecond}, "receipt done"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBackend(t)
			path := filepath.Join(t.TempDir(), "turns")
			log, err := openTurnLog(path)
			if err != nil {
				t.Fatal(err)
			}
			tc.opts.Backends = []string{b.url()}
			f := newTestFleet(t, tc.opts)
			f.turnLog = log
			if err := f.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Stop() }()
			conn := <-b.conns
			begin := time.Now()
			tick := begin.Unix()
			conn.ask(t, tick, "a", tick)
			conn.ask(t, tick, "b", tick+1)
			got := conn.answers(t, 2)
			if took := time.Since(begin); took < tc.opts.AckDelay {
				t.Errorf("answered after %v", took)
			}
			what := fmt.Sprintf("%s of lab for switch: %d ", tc.kind, tick)
			want := []string{what + "a 5", what + "b 5"}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("answers %q, want %q", got, want)
			}
			conn.acknowledge(t)
			until(func() bool { return f.measures.answers.count() == 2 })
			if err := errors.Join(f.Stop(), log.close()); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			if len(lines) != 2 {
				t.Fatalf("the log is\n%s", text)
			}
			for i, line := range lines {
				var at int64
				columns := strings.Split(line, "\t")
				_, err := fmt.Sscan(columns[len(columns)-1], &at)
				first := []string{fmt.Sprint(tick), "lab", []string{"a", "b"}[i], "switch", "a-1"}
				if err != nil || at < begin.UnixMilli() || !reflect.DeepEqual(columns[:len(columns)-1], first) {
					t.Errorf("line %q, want %q and a time", line, first)
				}
			}
			s := f.Snapshot()
			if s.Turns.Answered != 2 || s.Turns.Received != 2 || len(s.Answers) != 2 || s.Requests != 2 {
				t.Errorf("counted %+v of %d requests, answers %v", s.Turns, s.Requests, s.Answers)
			}
			if results := uint64(strings.Count(strings.Join(got, " "), "result")); s.Created != results || s.Events != results {
				t.Errorf("%d results were made and %d written, want %d", s.Created, s.Events, results)
			}
			for _, latency := range []string{report.LatencyTurnArrival, report.LatencyTurnAnswer} {
				if h := s.Latencies[latency]; h == nil {
					t.Errorf("%s was not measured", latency)
				}
			}
			if len(f.agents[0].pairs) != 0 {
				t.Error("the agent compares turns with what the backend stores for it")
			}
		})
	}
}

// TestRepeatedTurns: a turn that comes again while its answer is delayed is not answered twice.
func TestRepeatedTurns(t *testing.T) {
	f := newTestFleet(t, FleetOptions{AckDelay: time.Second, Count: 2})
	ask := func(agent int, tick int64, want bool) result {
		t.Helper()
		r, ok, err := f.agents[agent].onRequest(turnRequest(tick, "a", tick))
		if err != nil || ok != want {
			t.Errorf("agent %d takes tick %d: %v, error %v", agent, tick, ok, err)
		}
		return r
	}
	due := ask(0, 1, true)
	ask(0, 1, false)
	ask(1, 1, true)
	ask(0, 2, true)
	d := delayedAnswer{agent: f.agents[0], turns: []result{due}}
	if _, err := d.send(); err != nil {
		t.Fatal(err)
	}
	ask(0, 1, true) // its answer was lost, or the agent would not have it
	s := f.Snapshot()
	if s.Turns.Received != 5 || s.InProgress != 1 {
		t.Errorf("counted %+v, %d in progress", s.Turns, s.InProgress)
	}
}

// TestDelayed: answers leave in the order in which they came, when their time has come.
func TestDelayed(t *testing.T) {
	var q delayQueue
	start := time.Unix(1000, 0)
	agents := []*simAgent{{}, {}, {}}
	for i, a := range agents {
		q.put(delayedAnswer{due: start.Add(time.Duration(i) * time.Second), agent: a})
	}
	f := func(after time.Duration, want ...*simAgent) {
		t.Helper()
		var got []*simAgent
		for _, d := range q.removeDue(start.Add(after)) {
			got = append(got, d.agent)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after %v: %d answers, want %d", after, len(got), len(want))
		}
	}
	f(-1)
	f(time.Second, agents[0], agents[1])
	f(time.Second)
	f(2*time.Second - 1)
	f(time.Hour, agents[2])
	f(time.Hour)
}

// TestAnswersSurviveReconnect: the delayed result of a turn leaves on the agent's next connection. A receipt does not,
// for the backend gives the turn to another agent when the connection ends.
func TestAnswersSurviveReconnect(t *testing.T) {
	for name, tc := range map[string]struct {
		opts FleetOptions
		want int
	}{
		"sensu":    {FleetOptions{Protocol: ProtocolSensu}, 1},
		"lapwing":  {FleetOptions{}, 1},
		"receipts": {FleetOptions{Receipts: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBackend(t)
			tc.opts.AckDelay = time.Hour
			f := b.start(t, tc.opts)
			conn := <-b.conns
			conn.ask(t, 1, "a", 1)
			until(func() bool { return f.delayed.len() == 1 })
			first := configuredConn(f.agents[0])
			_ = conn.Close(wire.CloseGoingAway, "bye")
			again := <-b.conns
			until(func() bool { now := configuredConn(f.agents[0]); return now != nil && now != first })
			f.sendDelayed(time.Now().Add(2 * time.Hour))
			if tc.want > 0 {
				again.answers(t, 1)
				again.acknowledge(t)
				until(func() bool { return f.measures.answers.count() > 0 })
			}
			if n := f.Snapshot().Turns.Answered; n != uint64(tc.want) {
				t.Errorf("%d answers, want %d", n, tc.want)
			}
		})
	}
}

// configuredConn is the agent's connection; nil if it has none on which it may send.
func configuredConn(a *simAgent) *wire.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.configured {
		return nil
	}
	return a.conn
}

// until waits for a state that must come.
func until(is func() bool) {
	for !is() {
		time.Sleep(time.Millisecond) // a test that should pass waits as long as it takes
	}
}

func (q *delayQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue)
}

// TestReceiptsAreNotKept: receipts that wait for a socket are dropped with their connection.
func TestReceiptsAreNotKept(t *testing.T) {
	b := newFakeBackend(t)
	f := b.start(t, FleetOptions{Receipts: true})
	conn, a := <-b.conns, f.agents[0]
	until(func() bool { return configuredConn(a) != nil })
	first := configuredConn(a)
	a.mu.Lock()
	a.held = []result{{check: &check{name: "c"}, turn: turn{text: "1 a", tick: 1}}}
	a.mu.Unlock()
	_ = conn.Close(wire.CloseGoingAway, "bye")
	until(func() bool { now := configuredConn(a); return now != nil && now != first })
	conn = <-b.conns
	conn.ask(t, 2, "a", 2)
	if got := conn.answers(t, 1)[0]; got != "receipt done of lab for switch: 2 a 5" {
		t.Errorf("the next connection begins with the %s", got)
	}
}

// TestReceiptsWait: receipts for which the socket has no room leave when it has, and not on another connection.
func TestReceiptsWait(t *testing.T) {
	a, _ := connected(t, FleetOptions{Receipts: true})
	a.plan = nil
	r, ok := a.onTurn(&request{check: &check{name: "c"}, turn: turn{text: "1 a", tick: 1}}, time.Now())
	if !ok {
		t.Fatal("the turn was not taken")
	}
	a.writing = time.Now() // the socket is full
	if err := a.respond(a.conn, []result{r}); err != nil {
		t.Fatal(err)
	}
	if n := a.fleet.measures.answers.count(); n != 0 || len(a.held) != 1 {
		t.Errorf("%d receipts were sent, %d wait", n, len(a.held))
	}
	a.writing = time.Time{}
	if err := a.sendHeld(); err != nil {
		t.Fatal(err)
	}
	if n := a.fleet.measures.answers.count(); n != 1 || len(a.held) != 0 {
		t.Errorf("%d receipts were sent, %d wait", n, len(a.held))
	}
	if err := a.respond(nil, []result{r}); err != nil {
		t.Fatal(err)
	}
	if n := a.fleet.measures.answers.count(); n != 1 {
		t.Error("a receipt was sent on another connection")
	}
}

// TestWaitingTurnBlocksNoCheck: the result of a turn that waits for a connection is no reason to skip a run of a check.
func TestWaitingTurnBlocksNoCheck(t *testing.T) {
	a := newTestFleet(t, FleetOptions{Protocol: ProtocolSensu}).agents[0]
	r, ok, err := a.onRequest(turnRequest(1, "a", 1))
	if err != nil || !ok {
		t.Fatalf("the turn was not taken; error %v", err)
	}
	if err := a.respond(nil, []result{r}); err != nil {
		t.Fatal(err)
	}
	if len(a.held) != 1 || len(a.pairs) != 0 {
		t.Errorf("%d results wait, of %d checks", len(a.held), len(a.pairs))
	}
}

// TestQuietTurns: after the end of a run only turns of earlier ticks are taken.
func TestQuietTurns(t *testing.T) {
	f := newTestFleet(t, FleetOptions{})
	take := func(tick int64) bool {
		t.Helper()
		_, ok, err := f.agents[0].onRequest(turnRequest(tick, "a", tick))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	soon := time.Now().Unix() + 3600
	if !take(soon) {
		t.Error("a turn was not taken")
	}
	f.Quiet()
	if take(soon+1) || !take(time.Now().Unix()-10) {
		t.Error("the turns after the end were taken, or those before were not")
	}
	if s := f.Snapshot(); s.Turns.Received != 2 {
		t.Errorf("counted %+v", s.Turns)
	}
}

// TestSubscriptionsPerAgent: each subscription has about the same number of agents, over all parts of a group.
func TestSubscriptionsPerAgent(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	for _, tc := range []struct{ each, want int }{{0, 5}, {1, 1}, {2, 2}, {4, 4}, {5, 5}} {
		counts := map[string]int{}
		for _, part := range [][2]int{{1, 33}, {34, 41}, {75, 26}} {
			opts := FleetOptions{Subscriptions: all, SubscriptionsPerAgent: tc.each, First: part[0], Count: part[1]}
			f := newTestFleet(t, opts)
			for _, a := range f.agents {
				own := map[string]bool{}
				for _, s := range a.subscriptions {
					own[s] = true
					counts[s]++
				}
				if len(own) != tc.want || len(a.subscriptions) != tc.want {
					t.Fatalf("%s has %v, want %d", a.name, a.subscriptions, tc.want)
				}
				var entity resource.Entity
				if err := entity.UnmarshalProto(a.entity); err != nil || !reflect.DeepEqual(entity.Subscriptions, a.subscriptions) {
					t.Fatalf("the entity has %v, error %v", entity.Subscriptions, err)
				}
			}
		}
		for _, s := range all {
			if n, want := counts[s], 100*tc.want/5; n < want-tc.want || n > want+tc.want {
				t.Errorf("with %d for each agent, %s has %d agents", tc.each, s, n)
			}
		}
	}
	b := newFakeBackend(t)
	b.start(t, FleetOptions{Subscriptions: all, SubscriptionsPerAgent: 2, First: 4})
	if got := (<-b.conns).header.Get(wire.HeaderSubscriptions); got != "e,a" {
		t.Errorf("the handshake has the subscriptions %s", got)
	}
}

func TestFleetOptions(t *testing.T) {
	for want, change := range map[string]func(*FleetOptions){
		"cannot have 3 of 2":   func(o *FleetOptions) { o.SubscriptionsPerAgent = 3 },
		"cannot have -1 of 2":  func(o *FleetOptions) { o.SubscriptionsPerAgent = -1 },
		"delay of answers":     func(o *FleetOptions) { o.AckDelay = -1 },
		"only agents of the":   func(o *FleetOptions) { o.Protocol, o.Receipts = ProtocolSensu, true },
		"must be from 0 to 1":  func(o *FleetOptions) { o.KillAgents = 1.5 },
		"unknown protocol":     func(o *FleetOptions) { o.Protocol = "mqtt" },
		"at least a second":    func(o *FleetOptions) { o.KeepaliveInterval = 0 },
		"must be whole second": func(o *FleetOptions) { o.BatchDelay = 1 },
	} {
		o := FleetOptions{
			Backends: []string{"ws://x"}, Count: 1, Protocol: ProtocolLapwing, KeepaliveInterval: time.Minute,
			Subscriptions: []string{"a", "b"}, SubscriptionsPerAgent: 2, Receipts: true, KillAgents: 1,
		}
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
