package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestEventPath sends one event through a real socket and names each step it passes, in the order of the first figure
// in docs/ARCHITECTURE.md. Each step is observed by its effect: a frame, a counter, a state, a delivery.
func TestEventPath(t *testing.T) {
	b := testbackend.Start(t, nil)
	handled := make(chan *http.Request, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handled <- r }))
	defer hook.Close()
	putHandler(t, b, &resource.Handler{Type: "webhook", Filters: []string{"is_incident", "not_silenced"}, Webhook: &resource.HandlerWebhook{URL: hook.URL}}, "hook")

	// Session: the handshake, and the agent's registration by its keepalive.
	conn, _ := b.DialAgent(t, "web1", nil)
	if typ := readType(t, conn); typ != wire.TypeEntityConfig {
		t.Fatalf("first frame is %s", typ)
	}
	write(t, conn, testbackend.Keepalive(t, "web1", wire.Protobuf))
	if typ := readType(t, conn); typ != wire.TypeEntityConfig {
		t.Fatalf("after the keepalive came %s, want the registered entity_config", typ)
	}
	received, appended, folded := b.Counter(t, "lapwing_events_received_total"), b.Counter(t, "lapwing_events_appended_total"), b.Counter(t, "lapwing_events_folded_total")

	// Wire, session and intake: the event's frame.
	ev := testbackend.Event("web1", "disk", 2, time.Now().Unix())
	ev.Check.Handlers = []string{"hook"}
	frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
	if err != nil {
		t.Fatal(err)
	}
	write(t, conn, frame)

	// Handler: the test waits for the last step. All others must have happened by then.
	var req *http.Request
	select {
	case req = <-handled:
	case <-time.After(time.Minute):
		t.Fatal("the handler was not called")
	}
	if req.Header.Get("Idempotency-Key") == "" {
		t.Error("the delivery carries no key")
	}
	// Eventlog: the event is durable.
	if n := b.Counter(t, "lapwing_events_received_total") - received; n < 1 {
		t.Errorf("received counts %v", n)
	}
	// The fold may be faster than the acknowledgement, which counts the append.
	eventually(t, 60*time.Second, "the append is counted", func() bool { return b.Counter(t, "lapwing_events_appended_total")-appended >= 1 })
	// State: the event is folded, and can be read.
	got, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("web1", "disk"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Check.Occurrences != 1 || got.Check.State != "failing" || got.Entity.System.Hostname != "web1" {
		t.Errorf("state is %+v of %+v", got.Check, got.Entity)
	}
	// Pipeline: its filters let the event through once.
	eventually(t, 60*time.Second, "the run is counted, once", func() bool { return b.Counter(t, "lapwing_handler_runs_total") == 1 })
	if n := b.Counter(t, "lapwing_events_folded_total") - folded; n < 1 {
		t.Errorf("folded counts %v", n)
	}
}

func putHandler(t testing.TB, b *testbackend.Backend, h *resource.Handler, name string) {
	t.Helper()
	h.Metadata = resource.ObjectMeta{Name: name, Namespace: "default"}
	if err := client.Put(t.Context(), b.Client, client.Handlers, "default", name, h); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, conn *wire.Conn, frame []byte) {
	t.Helper()
	if err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
}

// read returns the next frame, which must come soon.
func read(t testing.TB, conn *wire.Conn) (typ string, payload []byte) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	msg, err := conn.Read()
	if err != nil {
		t.Fatal(err)
	}
	typ, payload, err = wire.Split(msg)
	if err != nil {
		t.Fatal(err)
	}
	return typ, payload
}

func readType(t testing.TB, conn *wire.Conn) string {
	t.Helper()
	typ, _ := read(t, conn)
	return typ
}

// eventually polls for a state that another process or goroutine will reach and that no signal announces.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal(fmt.Sprint("not within ", within, ": ", what))
		}
		<-tick.C
	}
}
