package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/session"
	"github.com/lapwing-monitoring/lapwing/state"
)

// TestOwnEventsPassQuotas: no quota keeps out what the backend says itself, and it uses up none.
func TestOwnEventsPassQuotas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	type part interface {
		Start(ctx context.Context) error
		Stop() error
	}
	start := func(p part, err error) {
		t.Helper()
		if err == nil {
			err = p.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() })
	}
	b, err := broker.New(broker.Options{Dir: dir})
	start(b, err)
	store, err := config.New(config.Options{Broker: b})
	start(store, err)
	log, err := eventlog.New(eventlog.Options{Broker: b, Dir: dir, Origin: "test", Partitions: 2, FlushInterval: time.Millisecond, MinFree: 1})
	start(log, err)
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	fold, err := state.New(state.Options{Log: log, DB: db, Origin: "test", Entity: func(namespace, name string) (*resource.EntityConfig, bool) {
		return config.Get(store.Snapshot(), config.Entities, namespace, name)
	}})
	start(fold, err)
	intake, err := session.NewIntake(session.IntakeOptions{
		Config: store, Log: log, State: fold, Quotas: session.Quotas{NamespaceEntities: 1, NamespaceBytes: 2000, NamespaceEvents: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = intake.Stop() })
	event := func(name string) *resource.Event {
		ev := testbackend.Event(name, "check", 0, time.Now().Unix())
		ev.Entity.EntityClass = resource.EntityProxyClass
		return ev
	}
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
