package intake

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// IntakeOf starts an intake with a broker, a store of definitions, a log and a fold of its own, and sets these in
// opts.
func IntakeOf(t *testing.T, partitions int, opts Options) *Intake {
	t.Helper()
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
	opts.Config, err = config.New(config.Options{Broker: b})
	start(opts.Config, err)
	opts.Log, err = eventlog.New(eventlog.Options{
		Broker: b, Dir: dir, Origin: "test", Partitions: partitions, FlushInterval: time.Millisecond, MinFree: 1,
	})
	start(opts.Log, err)
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	opts.State, err = state.New(state.Options{
		Log: opts.Log, DB: db, Entity: func(namespace, name string) (*resource.EntityConfig, bool) {
			return config.Get(opts.Config.Snapshot(), config.Entities, namespace, name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opts.State.Stop() })
	reading, err := fold.New(fold.Options{Log: opts.Log, State: opts.State})
	start(reading, err)
	i, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Stop() })
	return i
}
