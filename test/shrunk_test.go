package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestRemovedTombstonesAreNoDamage has a state directory whose newest definitions were deleted and whose tombstones are
// removed, as after a kill and as after a stop: nothing is lost.
func TestRemovedTombstonesAreNoDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var copies []string
	for round := range 2 {
		b := testbackend.Start(t, func(o *backend.Options) { o.StateDir, o.Config.TombstoneGrace = dir, time.Millisecond })
		for i := range 20 {
			name := fmt.Sprint("short-lived-", i)
			e := &resource.Entity{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, EntityClass: resource.EntityProxyClass}
			if err := client.Put(t.Context(), b.Client, client.Entities, "default", name, e); err != nil {
				t.Fatal(err)
			}
			if err := client.Delete(t.Context(), b.Client, client.Entities, "default", name); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, 30*time.Second, "the tombstones are removed", func() bool {
			return b.Counter(t, "lapwing_config_tombstones") == 0
		})
		copies = append(copies, copyDir(t, dir)) // as a kill leaves it
		if err := b.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		s, err := backend.Verify(testbackend.OptionsIn(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Lost() {
			t.Errorf("round %d: %s", round, f)
		}
	}
	for _, c := range copies {
		s, err := backend.Verify(testbackend.OptionsIn(c))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Lost() {
			t.Errorf("killed: %s", f)
		}
	}
}

// TestSeveralPartsLost removes the definitions with everything that mentions them: the event log still shows that there
// was a cluster, which must not be begun again.
func TestSeveralPartsLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := testbackend.Start(t, func(o *backend.Options) { o.StateDir = dir })
	if err := b.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	definitions, err := filepath.Glob(filepath.Join(dir, "broker", "jetstream", "*", "streams", "KV_config"))
	if err != nil || len(definitions) != 1 {
		t.Fatalf("streams of definitions: %v, %v", definitions, err)
	}
	for _, path := range []string{filepath.Join(dir, "identity"), filepath.Join(dir, "broker", "marks"), definitions[0]} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	s, err := backend.Verify(testbackend.OptionsIn(dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Lost()) == 0 {
		t.Errorf("nothing is lost: %v", s.Findings)
	}
}
