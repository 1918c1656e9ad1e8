package load

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestHoldsBack: results wait for others while their checks stay OK, and not for longer than the batch delay.
func TestHoldsBack(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	ok, failing := &check{id: 1}, &check{id: 2}
	for name, tc := range map[string]struct {
		delay time.Duration
		due   []result
		since int // second in which the oldest was held back; -1 if there is none
		want  bool

		noPlan bool
	}{
		"stays OK":            {5 * time.Second, []result{{check: ok, n: 2}}, -1, true, false},
		"stays OK, not ripe":  {5 * time.Second, []result{{check: ok, n: 2}}, 6, true, false},
		"ripe":                {5 * time.Second, []result{{check: ok, n: 2}}, 5, false, false},
		"the first":           {5 * time.Second, []result{{check: ok, n: 1}}, -1, false, false},
		"fails":               {5 * time.Second, []result{{check: failing, n: 2}}, -1, false, false},
		"one of several does": {5 * time.Second, []result{{check: ok, n: 2}, {check: failing, n: 2}}, 9, false, false},
		"without delay":       {0, []result{{check: ok, n: 2}}, -1, false, false},
		"without a schedule":  {5 * time.Second, []result{{check: ok, n: 2}}, -1, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := NewFleet(FleetOptions{
				Backends: []string{"ws://127.0.0.1:1"}, Protocol: ProtocolLapwing, BaseName: "a", Count: 1, KeepaliveInterval: time.Minute,
				BatchDelay: tc.delay, Seed: 1, Mix: []Share{{0, 1}, {2, 1}},
			}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			a := f.agents[0]
			if !tc.noPlan {
				a.plan = []planned{{check: ok}}
			}
			for ok.id = 1; a.status(&result{check: ok}, 1) > 0; ok.id++ {
			}
			for failing.id = 1; a.status(&result{check: failing}, 1) == 0; failing.id++ {
			}
			if tc.since >= 0 {
				a.ripe = at(tc.since).Add(tc.delay)
			}
			if got := a.holdsBack(tc.due, at(10)); got != tc.want {
				t.Errorf("held back: %v", got)
			}
			if want := at(10).Add(tc.delay); tc.since < 0 && tc.want && !a.ripe.Equal(want) {
				t.Errorf("ripe at %v, want %v", a.ripe, want)
			}
		})
	}
}

// TestHeldBackIsNotLate: the acknowledgement of a result that was held back on purpose is measured from the end of that
// time.
func TestHeldBackIsNotLate(t *testing.T) {
	f, err := NewFleet(FleetOptions{
		Backends: []string{"ws://127.0.0.1:1"}, Protocol: ProtocolLapwing, BaseName: "a", Count: 1, KeepaliveInterval: time.Minute,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a, now := f.agents[0], time.Now()
	a.unacked = []unacked{{sequence: 1, sent: now.Add(-20 * time.Second)}, {sequence: 2, sent: now.Add(-15 * time.Second)}}
	a.ripe = now.Add(-15 * time.Second)
	a.writing = now // the socket is full
	if err := a.sendWaiting(); err != nil {
		t.Fatal(err)
	}
	for _, u := range a.unacked {
		if got := now.Sub(u.sent); got != 15*time.Second {
			t.Errorf("result %d counts as %v old", u.sequence, got)
		}
	}
	if !a.ripe.IsZero() {
		t.Error("results are still held back")
	}
}

// TestMessages: results that are held back leave together, with a keepalive, at the end of their time, or when the agent
// has no schedule any more.
func TestMessages(t *testing.T) {
	a, read := connected(t, FleetOptions{BatchDelay: 5 * time.Second})
	second := time.Now().Unix()
	run := func() {
		second++
		a.runDue(second)
	}
	run() // the first result of a check is news
	read("result")
	run()
	run()
	if err := a.sendKeepalive(a.conn); err != nil {
		t.Fatal(err)
	}
	read("result", "result", "keepalive")
	run()
	run()
	a.plan[0].every, a.plan[0].phase = 3_600_000, (second*1000+1_800_000)%3_600_000 // due in half an hour
	a.runDue(a.ripe.Unix() - 1)
	a.runDue(a.ripe.Unix())
	read("result", "result")
	a.plan[0].every, a.plan[0].phase = 1000, 0
	a.due = 0
	run()
	if err := a.onSchedule(wire.AppendSchedule(nil, 1, true, nil)[len(wire.TypeSchedule)+1:]); err != nil {
		t.Fatal(err)
	}
	read("result")
	if got := [2]uint64{a.fleet.measures.events.Load(), a.fleet.measures.keepalives.Load()}; got != [2]uint64{6, 1} {
		t.Errorf("results and keepalives sent: %d", got)
	}
}

// connected returns an agent with a schedule of one check, due each second, whose connection leads to read. That reads one
// message and compares the kinds of what is in it.
func connected(t *testing.T, opts FleetOptions) (a *simAgent, read func(want ...string)) {
	server := make(chan *wire.Conn, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			t.Errorf("upgrade: %v", err)
			return
		}
		server <- wire.NewServerConn(conn, rw.Reader, 1<<20)
	}))
	t.Cleanup(srv.Close)
	opts.Backends = []string{"ws" + strings.TrimPrefix(srv.URL, "http")}
	opts.Protocol, opts.KeepaliveInterval, opts.BaseName, opts.Count = ProtocolLapwing, time.Minute, "a", 1
	f, err := NewFleet(opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a = f.agents[0]
	if a.conn, _, err = wire.Dial(t.Context(), opts.Backends[0], http.Header{}, wire.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.conn.Close(wire.CloseGoingAway, "bye") })
	peer := <-server
	t.Cleanup(func() { _ = peer.Close(wire.CloseGoingAway, "bye") })
	a.lapwing, a.configured, a.pace = true, true, wire.PaceGo
	a.plan = []planned{{check: newCheck(&resource.CheckConfig{Metadata: resource.ObjectMeta{Name: "c"}}), every: 1000}}
	return a, func(want ...string) {
		t.Helper()
		msg, err := peer.Read()
		if err != nil {
			t.Fatal(err)
		}
		typ, payload, err := wire.Split(msg)
		if err != nil || typ != wire.TypeEvents {
			t.Fatalf("message %s: %v", typ, err)
		}
		var got []string
		for events := wire.ReadEvents(payload); events.Next(); {
			if events.Item.Keepalive {
				got = append(got, "keepalive")
			} else {
				got = append(got, "result")
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the message has %v, want %v", got, want)
		}
	}
}
