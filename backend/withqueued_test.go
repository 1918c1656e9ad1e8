package backend

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// TestWithQueued: of a delivery that had its turn in the millisecond after it was found waiting, the trace is told.
func TestWithQueued(t *testing.T) {
	report := func(id string, v trace.Verdict) trace.Delivery {
		return trace.Delivery{Header: delivery.Header{ID: id, EventID: id, Handler: "mail", Received: 7}, Verdict: v, Updated: 8}
	}
	waiting := []trace.Delivery{report("0-2-0", trace.Waiting), report("0-1-0", trace.Waiting)}
	traced := []trace.Outcome{{Deliveries: []trace.Delivery{report("0-1-0", trace.Delivered)}}}
	got := withQueued(&trace.Query{}, waiting, traced)
	if len(got) != 2 || got[0].Deliveries[0].Verdict != trace.Waiting || got[1].Deliveries[0].Verdict != trace.Delivered {
		t.Errorf("%+v", got)
	}
}
