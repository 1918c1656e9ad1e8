package intake_test

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestOwnEventsPassQuotas: no quota refuses the backend's own events, and they use up none.
func TestOwnEventsPassQuotas(t *testing.T) {
	t.Parallel()
	intake := intake.IntakeOf(t, 2, intake.Options{Quotas: intake.Quotas{NamespaceEntities: 1, NamespaceBytes: 2000, NamespaceEvents: 1}})
	event := func(name string) *resource.Event {
		ev := testbackend.Event(name, "check", 0, time.Now().Unix())
		ev.Entity.EntityClass = resource.EntityProxyClass
		return ev
	}
	var err error
	for range 20 {
		if err = intake.Submit(t.Context(), event("flood")); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("a flood was taken")
	}
	for range 10 {
		if err := intake.Report(t.Context(), "default", "trouble", 1, "what to do"); err != nil {
			t.Error(err)
		}
		if err := intake.Internal().Submit(t.Context(), event("aggregate")); err != nil {
			t.Error(err)
		}
	}
}
