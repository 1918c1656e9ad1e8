package session_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestBatchesThatWait sends batches with events that must wait because a proxy entity has to be made first, and long
// batches. Each event is counted and acknowledged once.
func TestBatchesThatWait(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	a := dial(t, b, "own", lapwingHeaders)
	wait(t, "the keepalive is counted", func() bool { return b.Counter(t, "lapwing_events_received_total") == 1 })
	bytes, events := b.Counter(t, "lapwing_agent_received_bytes_total"), b.Counter(t, "lapwing_events_received_total")
	random := rand.New(rand.NewPCG(1, 2))
	var sent, total float64
	seq := uint64(2)
	for round := range 40 {
		var items []wire.Item
		n := 1 + random.IntN(8)
		if round%10 == 0 {
			n = 200
		}
		for i := range n {
			ev := testbackend.Event("own", fmt.Sprint("check-", i), 0, time.Now().Unix())
			if random.IntN(4) == 0 {
				ev.Check.ProxyEntityName = fmt.Sprintf("proxy-%d-%d", round, i%10)
			}
			items = append(items, wire.Item{Event: ev.AppendProto(nil)})
		}
		batch := wire.AppendEvents(nil, seq, items)
		if err := a.Write(batch); err != nil {
			t.Fatal(err)
		}
		seq += uint64(n)
		total += float64(n)
		sent += float64(len(batch))
	}
	for acked := uint64(0); acked < seq-1; {
		typ, payload := a.next()
		if typ != wire.TypeAck {
			continue
		}
		n, err := wire.DecodeAck(payload)
		if err != nil {
			t.Fatal(err)
		}
		acked = n
	}
	if got := b.Counter(t, "lapwing_events_received_total") - events; got != total {
		t.Errorf("%v events were taken, %v were sent", got, total)
	}
	if got := b.Counter(t, "lapwing_agent_received_bytes_total") - bytes; got != sent {
		t.Errorf("%v bytes were received, %v were sent", got, sent)
	}
}

// TestLogWithoutRoom fills the log's buffers while the disk takes nothing. Agents whose events wait do not delay the
// reading of others.
func TestLogWithoutRoom(t *testing.T) {
	t.Parallel()
	b := startNoRoom(t, false, nil)
	b.fill()
	for i := range 12 {
		name := fmt.Sprint("modest-", i)
		if _, err := b.connect(name).Write(eventFrame(t, name, 6000)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		conn, _ := b.DialAgent(t, fmt.Sprint("quiet-", i), nil)
		a := agent{conn, t}
		a.want(wire.TypeEntityConfig)
		pongs := 0
		a.OnPong(func() { pongs++ })
		if err := a.Ping(); err != nil {
			t.Fatal(err)
		}
		if err := a.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for pongs == 0 {
			if _, _, err := a.Next(); err != nil {
				t.Fatalf("no answer to a ping: %v", err)
			}
		}
	}
}

// wait polls until ok, for states that no channel signals.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not within 2 min: ", what)
		}
	}
}
