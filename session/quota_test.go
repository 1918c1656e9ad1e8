package session_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// sendProxied sends an event for a proxy entity, and returns why it was refused; "" if it was taken.
func (a agent) sendProxied(seq uint64, proxy string, size int) (reason string) {
	a.t.Helper()
	ev := testbackend.Event("own", "remote", 0, time.Now().Unix())
	ev.Check.ProxyEntityName, ev.Check.Output = proxy, strings.Repeat("x", size)
	if err := a.Write(wire.AppendEvents(nil, seq, []wire.Item{{Event: ev.AppendProto(nil)}})); err != nil {
		a.t.Fatal(err)
	}
	for acked := uint64(0); acked < seq; {
		typ, payload := a.next()
		var err error
		switch typ {
		case wire.TypeRefused:
			_, reason, err = wire.DecodeRefused(payload)
		case wire.TypeAck:
			acked, err = wire.DecodeAck(payload)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	return reason
}

// TestAgentQuotas: one agent makes and fills proxy entities until its quotas are used up. It gets the reason; a delete
// makes room.
func TestAgentQuotas(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, func(o *testbackend.Options) {
		o.Intake.Quotas.AgentEntities, o.Intake.Quotas.AgentBytes = 3, 100_000
	})
	a := dial(t, b, "own", lapwingHeaders)
	seq := uint64(1)
	send := func(proxy string, size int, want string) {
		t.Helper()
		seq++
		if got := a.sendProxied(seq, proxy, size); got != want {
			t.Errorf("%s with %d bytes: refused by %q, want %q", proxy, size, got, want)
		}
	}
	const entities = "quota of agent own is used up: --agent-quota-entities is 3"
	const bytes = "quota of agent own is used up: --agent-quota-bytes is 100000"
	for i := range 3 {
		send(fmt.Sprint("proxy-", i), 30_000, "")
	}
	send("proxy-3", 10, entities)
	send("proxy-0", 60_000, bytes)
	send("proxy-0", 30_000, "") // as large as the one it replaces
	send("proxy-1", 10, "")
	send("proxy-0", 55_000, "") // there is room now
	if err := client.Delete(t.Context(), b.Client, client.Entities, "default", "proxy-2"); err != nil {
		t.Fatal(err)
	}
	send("proxy-3", 10, "")
	send("proxy-4", 10, entities)
	if n := b.Counter(t, "lapwing_quota_refused_total"); n != 3 {
		t.Errorf("%v refusals were counted", n)
	}
	requireServing(t, b, "beside")
	ev := testbackend.Event("own", "own", 0, time.Now().Unix())
	ev.Check.Output = strings.Repeat("x", 200_000) // the agent's own entity does not count
	seq++
	if err := a.Write(wire.AppendEvents(nil, seq, []wire.Item{{Event: ev.AppendProto(nil)}})); err != nil {
		t.Fatal(err)
	}
	a.want(wire.TypeAck)
}

// TestNamespaceQuotas: a user of the API gets an error that says to try again later.
func TestNamespaceQuotas(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, func(o *testbackend.Options) {
		o.Intake.Quotas.NamespaceEntities, o.Intake.Quotas.NamespaceBytes, o.Intake.Quotas.NamespaceEvents = 2, 100_000, 10
	})
	post := func(entity string, size int) error {
		ev := testbackend.Event(entity, "posted", 0, time.Now().Unix())
		ev.Entity.EntityClass, ev.Check.Output = "proxy", strings.Repeat("x", size)
		return client.Post(t.Context(), b.Client, client.Events, "default", ev)
	}
	refused := func(what string, err error, quota string) {
		t.Helper()
		var e *client.Error
		if !errors.As(err, &e) || e.Status != http.StatusTooManyRequests || !strings.Contains(e.Message, quota) {
			t.Errorf("%s: got %v, want 429 of %s", what, err, quota)
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := post(name, 40_000); err != nil {
			t.Fatal(err)
		}
	}
	refused("a third entity", post("c", 10), "--namespace-quota-entities is 2")
	refused("more bytes", post("a", 70_000), "--namespace-quota-bytes is 100000")
	var err error
	for range 1000 {
		if err = post("a", 10); err != nil {
			break
		}
	}
	refused("one event after the other", err, "--namespace-quota-events is 10")
}

// TestAgentRate: an agent that sends too much is delayed, and none of its events is lost.
func TestAgentRate(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Intake.Quotas.AgentEvents = 100 })
	a, other := dial(t, b, "own", lapwingHeaders), dial(t, b, "other", nil)
	begin := time.Now()
	const events = 400
	for i := range uint64(events) {
		ev := testbackend.Event("own", "fast", 0, time.Now().Unix())
		if err := a.Write(wire.AppendEvents(nil, i+2, []wire.Item{{Event: ev.AppendProto(nil)}})); err != nil {
			t.Fatal(err)
		}
	}
	frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, testbackend.Event("other", "slow", 0, time.Now().Unix()))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Write(frame); err != nil {
		t.Fatal(err)
	}
	wait(t, "the other's event is taken", func() bool {
		_, err := client.Get(t.Context(), b.Client, client.Events, "default", "other/slow")
		return err == nil
	})
	for acked := uint64(0); acked < events+1; {
		typ, payload := a.next()
		if typ == wire.TypeRefused {
			t.Fatal("an event was refused")
		}
		if typ == wire.TypeAck {
			if acked, err = wire.DecodeAck(payload); err != nil {
				t.Fatal(err)
			}
		}
	}
	// 100 a second, with a burst of one second.
	if took := time.Since(begin); took < 2500*time.Millisecond {
		t.Errorf("%d events were taken in %s", events, took)
	}
	if n := b.Counter(t, "lapwing_quota_held_seconds_total"); n == 0 {
		t.Error("it was not counted")
	}
}
