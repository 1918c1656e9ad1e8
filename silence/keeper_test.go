package silence

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// deletions reports the names of silences as they are deleted.
func deletions(t *testing.T, s *config.Store) <-chan string {
	deleted := make(chan string, 100)
	t.Cleanup(s.OnChange(func(c config.Change) {
		if c.Kind == config.Silences.String() && c.Deleted {
			deleted <- c.Name
		}
	}))
	return deleted
}

func wait(t *testing.T, deleted <-chan string, want string) {
	t.Helper()
	select {
	case got := <-deleted:
		if got != want {
			t.Fatalf("%s was deleted, want %s", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s was not deleted", want)
	}
}

func startKeeper(t *testing.T, s *config.Store) *Keeper {
	t.Helper()
	k, err := New(Options{Config: s, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Stop() })
	return k
}

func left(s *config.Store) (names []string) {
	for one := range config.List(s.Snapshot(), config.Silences, "") {
		names = append(names, one.Metadata.Name)
	}
	return names
}

func TestExpiredAreDeleted(t *testing.T) {
	s := testconfig.Store(t)
	deleted := deletions(t, s)
	ends := func(in time.Duration) func(*resource.Silenced) {
		return func(one *resource.Silenced) { one.ExpireAt = time.Now().Add(in).Unix() }
	}
	put(t, s, "for ever", "", nil)
	put(t, s, "long", "", ends(time.Hour))
	before := put(t, s, "before", "", ends(-time.Hour))
	k := startKeeper(t, s)
	wait(t, deleted, before) // what expired while there was no backend
	soon := put(t, s, "soon", "", ends(2*time.Second))
	wait(t, deleted, soon)
	if err := k.Stop(); err != nil { // the deletion is counted after it is done
		t.Fatal(err)
	}
	if got := left(s); len(got) != 2 {
		t.Errorf("%v are left", got)
	}
	if got := testutil.ToFloat64(k.metrics.expired); got != 2 {
		t.Errorf("%v are counted, want 2", got)
	}
}

func TestResolvedAreDeleted(t *testing.T) {
	s := testconfig.Store(t)
	deleted := deletions(t, s)
	k := startKeeper(t, s)
	now := time.Now()
	onResolve := func(one *resource.Silenced) { one.ExpireOnResolve, one.Begin = true, now.Unix() }
	mine := put(t, s, "mine", "", onResolve)
	kept := put(t, s, "kept", "", nil)
	newer := put(t, s, "newer", "", func(one *resource.Silenced) { one.ExpireOnResolve, one.Begin = true, now.Unix()+60 })
	k.Resolved("default", []string{kept, newer, "missing:*", mine}, now)
	wait(t, deleted, mine)
	if got := left(s); len(got) != 2 {
		t.Errorf("%v are left, want %s and %s", got, kept, newer)
	}

	// Silences ended before Stop are deleted before it returns.
	last := put(t, s, "last", "", onResolve)
	k.Resolved("default", []string{last}, now)
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := left(s); len(got) != 2 {
		t.Errorf("%v are left after Stop", got)
	}
	if got := testutil.ToFloat64(k.metrics.resolved); got != 2 {
		t.Errorf("%v are counted, want 2", got)
	}
}

// TestSeveralKeepers runs one for each backend of a cluster, over the same silences.
func TestSeveralKeepers(t *testing.T) {
	s := testconfig.Store(t)
	deleted := deletions(t, s)
	for range 3 {
		startKeeper(t, s)
	}
	for range 2 {
		name := put(t, s, "short", "", func(one *resource.Silenced) { one.ExpireAt = time.Now().Unix() })
		wait(t, deleted, name)
	}
	select {
	case name := <-deleted:
		t.Errorf("%s was deleted twice", name)
	default:
	}
}
