package session_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestMessagesThatWaitAreBounded: 100 agents with TLS send an event of 1 MiB each while the log has no room. The
// backend reads no more of them than its bound, closes no connection, and takes all events when there is room.
func TestMessagesThatWaitAreBounded(t *testing.T) {
	const limit, size, agents = 16 << 20, 1 << 20, 100
	b := startNoRoom(t, true, func(o *testbackend.Options) { o.Session.PartialBytes = limit })
	b.fill()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	event := eventFrame(t, "big", size)
	before := heap()
	for range agents {
		c := b.connect("big")
		go func() { _, _ = c.Write(event) }()
	}
	wait(t, "all wait", func() bool {
		// In this order, because a message moves from the second to the first.
		held := b.Counter(t, "lapwing_agent_waiting_bytes") + b.Counter(t, "lapwing_agent_partial_bytes")
		if held > limit+size {
			t.Fatalf("%v bytes are held, %d may be", held, limit)
		}
		return b.Counter(t, "lapwing_eventlog_blocked_appends")+b.Counter(t, "lapwing_agent_reads_stopped") == fillers+agents
	})
	// A message that waits for room in the log is in memory twice, and a TLS connection has buffers of its own.
	if grown := heap() - before; grown > 2*(limit+size)+agents*(100<<10) {
		t.Errorf("%d messages that wait take %d MiB", agents, grown>>20)
	}
	b.giveRoom()
	wait(t, "all events are taken", func() bool { return b.Counter(t, "lapwing_events_received_total") == 1+fillers*1000+agents })
	if n := b.Counter(t, "lapwing_agent_sessions"); n != fillers+agents {
		t.Errorf("%v connections are open, want %d", n, fillers+agents)
	}
	wait(t, "nothing is held", func() bool {
		return b.Counter(t, "lapwing_agent_partial_bytes")+b.Counter(t, "lapwing_agent_waiting_bytes") == 0
	})
}

// TestOrderOfMessagesThatWait sends events of all sizes, for the agent itself and for proxy entities that have to be
// made, with keepalives between them, while the log has no room. Each check's results stay in order.
func TestOrderOfMessagesThatWait(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, secure bool) {
		b := startNoRoom(t, secure, nil)
		b.fill()
		const checks, each = 10, 20 // the history of a check has 21 results
		var stream []byte
		for i := range checks * each {
			check, n := i/each, i%each
			ev := testbackend.Event("own", fmt.Sprint("check-", check), uint32(n), time.Now().Unix())
			ev.Check.Output = strings.Repeat("x", []int{10, 3000, 20_000, 500}[n%4])
			if check%3 == 0 {
				ev.Check.ProxyEntityName = fmt.Sprint("proxy-", check)
			}
			stream = append(stream, frameOf(t, wire.TypeEvent, ev)...)
			if i%7 == 3 {
				keepalive := testbackend.Event("own", "keepalive", 0, time.Now().Unix())
				stream = append(stream, frameOf(t, wire.TypeKeepalive, keepalive)...)
			}
		}
		c := b.connect("own")
		go func() { _, _ = c.Write(stream) }()
		b.heldUp(fillers + 1)
		b.giveRoom()
		for check := range checks {
			entity := "own"
			if check%3 == 0 {
				entity = fmt.Sprint("proxy-", check)
			}
			var history []resource.CheckHistory
			wait(t, "all events are there", func() bool {
				ev, err := client.Get(t.Context(), b.Client, client.Events, "default", fmt.Sprintf("%s/check-%d", entity, check))
				if err != nil {
					return false
				}
				history = ev.Check.History
				return len(history) == each
			})
			for n, h := range history {
				if h.Status != uint32(n) {
					t.Fatalf("check %d: result %d came at place %d", check, h.Status, n)
				}
			}
		}
	})
}
