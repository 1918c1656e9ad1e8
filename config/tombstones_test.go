package config_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// bucket is the broker's bucket of definitions.
type bucket struct {
	t      *testing.T
	broker *broker.Broker
	store  *config.Store
}

func openBucket(t *testing.T, dir string, grace time.Duration) *bucket {
	t.Helper()
	b, err := broker.New(broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := config.New(config.Options{Broker: b, TombstoneGrace: grace})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	bk := &bucket{t, b, s}
	t.Cleanup(bk.close)
	return bk
}

func (b *bucket) close() {
	_ = b.store.Stop()
	_ = b.broker.Stop()
}

func (b *bucket) messages() uint64 {
	b.t.Helper()
	stream, err := b.broker.JetStream().Stream(b.t.Context(), "KV_config")
	if err != nil {
		b.t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

// waitForMessages waits until the bucket has want messages.
func (b *bucket) waitForMessages(want uint64) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for b.messages() != want {
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("the bucket has %d messages, want %d", b.messages(), want)
		}
	}
}

func host(name string) *resource.EntityConfig {
	return &resource.EntityConfig{EntityClass: resource.EntityAgentClass, Metadata: resource.ObjectMeta{
		Namespace: "default", Name: name, Annotations: map[string]string{"about": fmt.Sprintf("%01000d", 0)},
	}}
}

// TestTheBucketShrinks makes and deletes entities and sign-ins: only the existing ones stay in the bucket.
func TestTheBucketShrinks(t *testing.T) {
	b := openBucket(t, t.TempDir(), time.Nanosecond)
	ctx := t.Context()
	if err := config.Create(ctx, b.store, config.Checks, check("default", "stays")); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for i := range 200 {
			if err := config.Create(ctx, b.store, config.Entities, host(fmt.Sprintf("host-%d-%d", round, i))); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 200 {
			if err := config.Delete(ctx, b.store, config.Entities, "default", fmt.Sprintf("host-%d-%d", round, i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			id := fmt.Sprintf("session-%d-%d", round, i)
			if err := config.Create(ctx, b.store, config.Sessions, &resource.Session{ID: id, User: "admin"}); err != nil {
				t.Fatal(err)
			}
			if err := config.Delete(ctx, b.store, config.Sessions, "", id); err != nil {
				t.Fatal(err)
			}
		}
		b.waitForMessages(1)
	}
	if _, ok := config.Get(b.store.Snapshot(), config.Checks, "default", "stays"); !ok {
		t.Error("a definition is gone")
	}
}

// TestTombstonesOfBefore opens a bucket with tombstones, keeps them for their time, and then removes them. A definition
// made again under the same name stays, and revisions do not go back.
func TestTombstonesOfBefore(t *testing.T) {
	dir := t.TempDir()
	b := openBucket(t, dir, 0)
	ctx := t.Context()
	for _, name := range []string{"a", "b", "c"} {
		if err := config.Create(ctx, b.store, config.Entities, host(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := config.Delete(ctx, b.store, config.Entities, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	if err := config.Create(ctx, b.store, config.Entities, host("b")); err != nil {
		t.Fatal(err)
	}
	if err := config.Delete(ctx, b.store, config.Entities, "default", "b"); err != nil {
		t.Fatal(err)
	}
	if err := config.Create(ctx, b.store, config.Entities, host("a")); err != nil {
		t.Fatal(err)
	}
	if err := config.Put(ctx, b.store, config.Entities, host("gone")); err != nil {
		t.Fatal(err)
	}
	if err := config.Delete(ctx, b.store, config.Entities, "default", "gone"); err != nil {
		t.Fatal(err)
	}
	if n := b.messages(); n != 4 {
		t.Errorf("%d messages before the marks' time, want a, and the marks of b, c and gone", n)
	}
	revision := b.store.Snapshot().Revision()
	b.close()

	b = openBucket(t, dir, time.Nanosecond)
	b.waitForMessages(1)
	b.close()

	b = openBucket(t, dir, 0)
	if _, ok := config.Get(b.store.Snapshot(), config.Entities, "default", "a"); !ok {
		t.Error("an entity that was made again is gone")
	}
	if got := b.store.Snapshot().Revision(); got != revision {
		t.Errorf("the revision went from %d to %d: a live stream would go on from the wrong place", revision, got)
	}
	if err := config.Create(ctx, b.store, config.Entities, host("c")); err != nil {
		t.Errorf("make an entity again whose mark was removed: %v", err)
	}
}
