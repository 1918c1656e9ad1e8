package session

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// TestLostAnnouncementIsReported registers an agent whose session ends, while the log takes nothing.
func TestLostAnnouncementIsReported(t *testing.T) {
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
	log, err := eventlog.New(eventlog.Options{Broker: b, Dir: dir, Origin: "test", Partitions: 1, FlushInterval: time.Millisecond, MinFree: 1})
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
	var lines bytes.Buffer
	i, err := NewIntake(IntakeOptions{Config: store, Log: log, State: fold, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Stop() })
	if err := log.Stop(); err != nil {
		t.Fatal(err)
	}
	agent := &resource.Entity{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "web1"}, EntityClass: resource.EntityAgentClass,
		System: resource.System{Hostname: "web1"},
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.registrationEvent(ctx, agent, time.Now()); err == nil {
		t.Error("the log took it")
	}
	if text := lines.String(); !strings.Contains(text, "registration of an agent was not announced") || !strings.Contains(text, "entity=web1") {
		t.Errorf("logged:\n%s", text)
	}
}
