package session_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// agent is the agent's end of a session, over a real socket.
type agent struct {
	*wire.Conn
	t *testing.T
}

var lapwingHeaders = http.Header{wire.HeaderProtocol: {wire.ProtocolVersion}, wire.HeaderEpoch: {"00000000000000ff"}}

// dial connects an agent and registers it.
func dial(t *testing.T, b *testbackend.Backend, name string, extra http.Header) agent {
	t.Helper()
	conn, answer := b.DialAgent(t, name, extra)
	a := agent{conn, t}
	if got := answer.Get(wire.HeaderProtocol); got != extra.Get(wire.HeaderProtocol) {
		t.Fatalf("agreed on protocol %q, asked for %q", got, extra.Get(wire.HeaderProtocol))
	}
	var cfg resource.EntityConfig
	a.decode(a.want(wire.TypeEntityConfig), &cfg)
	if cfg.Metadata.Name != "not found" {
		t.Fatalf("a new agent is told of %q", cfg.Metadata.Name)
	}
	frame := testbackend.Keepalive(t, name, wire.Protobuf)
	if extra != nil {
		_, ev, _ := wire.Split(frame)
		frame = wire.AppendEvents(nil, 1, []wire.Item{{Keepalive: true, Event: ev}})
	}
	if err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	a.decode(a.want(wire.TypeEntityConfig), &cfg)
	if cfg.Metadata.Name != name {
		t.Fatalf("a registered agent is told of %q", cfg.Metadata.Name)
	}
	return a
}

// next returns the next frame.
func (a agent) next() (typ string, payload []byte) {
	a.t.Helper()
	if err := a.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		a.t.Fatal(err)
	}
	msg, err := a.Read()
	if err != nil {
		a.t.Fatal(err)
	}
	typ, payload, err = wire.Split(msg)
	if err != nil {
		a.t.Fatal(err)
	}
	return typ, slices.Clone(payload)
}

func (a agent) want(typ string) []byte {
	a.t.Helper()
	got, payload := a.next()
	if got != typ {
		a.t.Fatalf("got %s, want %s", got, typ)
	}
	return payload
}

func (a agent) decode(payload []byte, m wire.Message) {
	a.t.Helper()
	if err := wire.Decode(payload, wire.Protobuf, m); err != nil {
		a.t.Fatal(err)
	}
}

// schedule returns the next frame, which must be a schedule.
func (a agent) schedule() (revision uint64, replace bool, entries []wire.ScheduleEntry) {
	a.t.Helper()
	revision, replace, entries, err := wire.DecodeSchedule(a.want(wire.TypeSchedule))
	if err != nil {
		a.t.Fatal(err)
	}
	return revision, replace, entries
}

func putCheck(t *testing.T, b *testbackend.Backend, name string, edit func(*resource.CheckConfig)) {
	t.Helper()
	c := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: name, Namespace: "default"},
		Command:  "true", Interval: 1, Publish: true, Subscriptions: []string{"linux"},
	}
	if edit != nil {
		edit(c)
	}
	if err := client.Put(t.Context(), b.Client, client.Checks, "default", name, c); err != nil {
		t.Fatal(err)
	}
}

// TestStockAgent: a Sensu agent gets a request for each run and no message that it does not know. Requests of one
// second come before those of the next.
func TestStockAgent(t *testing.T) {
	b := testbackend.Start(t, nil)
	checks := []string{"a", "b", "c"}
	for _, name := range checks {
		putCheck(t, b, name, nil)
	}
	conn := dial(t, b, "stock", nil)
	var first int64
	for second := range int64(3) {
		var names []string
		for i := range checks {
			var q resource.CheckRequest
			conn.decode(conn.want(wire.TypeCheckRequest), &q)
			if first == 0 {
				first = q.Issued
			}
			if q.Issued != first+second {
				t.Errorf("request %d of second %d was issued at %d, the first at %d", i, second, q.Issued, first)
			}
			if early := time.Until(time.Unix(q.Issued, 0)); early > 0 {
				t.Errorf("it came %s before its tick", early)
			}
			names = append(names, q.Config.Metadata.Name)
		}
		if slices.Sort(names); !slices.Equal(names, checks) {
			t.Errorf("second %d: requests of %v", second, names)
		}
	}
	if n := b.Counter(t, "lapwing_agent_slow_writes_total"); n != 0 {
		t.Errorf("%v writes needed a goroutine", n)
	}
	if n := b.Counter(t, "lapwing_agent_request_lateness_seconds"); n < 3 || n > 9 {
		t.Errorf("%v writes of requests in 3 seconds", n)
	}
}

// TestScheduledAgent: a lapwing agent gets its schedule, and no requests for the checks in it.
func TestScheduledAgent(t *testing.T) {
	b := testbackend.Start(t, nil)
	putCheck(t, b, "one", nil)
	putCheck(t, b, "other", func(c *resource.CheckConfig) { c.Subscriptions = []string{"web"} })
	a := dial(t, b, "own", lapwingHeaders)
	revision, replace, entries := a.schedule()
	if revision != 1 || !replace || len(entries) != 1 {
		t.Fatalf("revision %d, replace %v, %d entries", revision, replace, len(entries))
	}
	var q resource.CheckRequest
	a.decode(entries[0].Request, &q)
	if q.Config.Metadata.Name != "one" || q.Config.Interval != 1 || q.Issued != 0 || entries[0].PhaseMillis >= 1000 {
		t.Errorf("entry %+v with the phase %d", q, entries[0].PhaseMillis)
	}
	if seq, err := wire.DecodeAck(a.want(wire.TypeAck)); err != nil || seq != 1 {
		t.Errorf("acknowledged %d, %v", seq, err)
	}

	// Each run of a round-robin check is requested. The other checks were not requested in the meantime.
	putCheck(t, b, "turns", func(c *resource.CheckConfig) { c.RoundRobin = true })
	for range 2 {
		a.decode(a.want(wire.TypeCheckRequest), &q)
		if q.Config.Metadata.Name != "turns" {
			t.Errorf("asked for %s", q.Config.Metadata.Name)
		}
	}
	if err := client.Delete(t.Context(), b.Client, client.Checks, "default", "turns"); err != nil {
		t.Fatal(err)
	}

	putCheck(t, b, "other", func(c *resource.CheckConfig) { c.Cron, c.Interval = "TZ=UTC 0 4 * * *", 0 })
	typ, payload := a.next()
	for typ == wire.TypeCheckRequest { // of the last second
		typ, payload = a.next()
	}
	revision, replace, entries, err := wire.DecodeSchedule(payload)
	if err != nil || typ != wire.TypeSchedule || revision != 2 || replace || len(entries) != 1 {
		t.Fatalf("%s revision %d, replace %v, %d entries, %v", typ, revision, replace, len(entries), err)
	}
	putCheck(t, b, "one", func(c *resource.CheckConfig) { c.Publish = false })
	if revision, replace, entries = a.schedule(); revision != 3 || replace || len(entries) != 1 || entries[0].Remove != "one" {
		t.Fatalf("revision %d, replace %v, entries %v", revision, replace, entries)
	}

	e, err := client.Get(t.Context(), b.Client, client.Entities, "default", "own")
	if err != nil {
		t.Fatal(err)
	}
	e.Subscriptions = []string{"db"}
	if err := client.Put(t.Context(), b.Client, client.Entities, "default", "own", e); err != nil {
		t.Fatal(err)
	}
	a.want(wire.TypeEntityConfig)
	if revision, replace, entries = a.schedule(); revision != 4 || !replace || len(entries) != 0 {
		t.Fatalf("revision %d, replace %v, entries %v", revision, replace, entries)
	}
	if n := b.Counter(t, "lapwing_agent_schedules_sent_total"); n != 4 {
		t.Errorf("%v schedules sent", n)
	}
}
