package session_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestDrainStockAgent: a Sensu agent gets the goodbye that it knows, and events that it sends before its answer are
// accepted.
func TestDrainStockAgent(t *testing.T) {
	b := testbackend.Start(t, nil)
	stock := dial(t, b, "stock", nil)
	if _, err := b.Client.Drain(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	for i := range int64(20) { // it is asked to leave after the first few
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, testbackend.Event("stock", "disk", 0, now-100+i))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(stock.Write(frame), stock.Ping()); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		for deadline := time.Now().Add(time.Minute); ; {
			ev, err := client.Get(t.Context(), b.Client, client.Events, "default", "stock/disk")
			if err == nil && ev.Check.Executed == now-100+i {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("event %d was not taken: %v", i, err)
			}
			<-time.After(5 * time.Millisecond) // between checks for a state that must come
		}
	}
	_, _, err := b.TryDialAgent("other", nil)
	var refused *wire.HandshakeError
	if !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
		t.Errorf("another agent got %v", err)
	}
	for {
		_, err := stock.Read()
		if err == nil {
			continue
		}
		var closed *wire.CloseError
		if !errors.As(err, &closed) || *closed != (wire.CloseError{Code: wire.CloseGoingAway, Reason: "bye"}) {
			t.Errorf("it got %v", err)
		}
		break
	}
	wait(t, "its session ends", func() bool { return b.Counter(t, "lapwing_agent_sessions") == 0 })
	if err := b.Client.Undrain(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	b.DialAgent(t, "stock", nil)
}
