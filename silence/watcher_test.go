package silence

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// watching starts a Watcher over silences; change adjusts its options.
func watching(t *testing.T, s *config.Store, change func(*WatcherOptions)) *Watcher {
	t.Helper()
	opts := WatcherOptions{
		Config: s, Matcher: NewMatcher(nil, nil), Announce: func(context.Context, string, Covers) error { return nil },
		Count:   func(context.Context, string, Covers) (int, int, error) { return 3, 2, nil },
		Remind:  func(context.Context, *Reminder) error { return nil },
		Failing: func(string, string, string) bool { return true },
	}
	if change != nil {
		change(&opts)
	}
	w, err := NewWatcher(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Stop() })
	return w
}

// TestAcknowledgementsOfWhatDoesNotFail: the end of an incident may have been missed, or its event deleted.
func TestAcknowledgementsOfWhatDoesNotFail(t *testing.T) {
	s := testconfig.Store(t)
	deleted := deletions(t, s)
	ack := func(age time.Duration) func(*resource.Silenced) {
		return func(one *resource.Silenced) {
			one.Acknowledgement, one.ExpireOnResolve, one.Begin = true, true, time.Now().Add(-age).Unix()
		}
	}
	gone := put(t, s, "entity:web1", "gone", ack(time.Minute))
	failing := put(t, s, "entity:web1", "failing", ack(time.Minute))
	young := put(t, s, "entity:web1", "young", ack(0))
	plain := put(t, s, "entity:web1", "plain", func(one *resource.Silenced) { one.ExpireOnResolve = true })
	w := watching(t, s, func(o *WatcherOptions) {
		o.Failing = func(_, entity, check string) bool { return entity == "web1" && check == "failing" }
	})
	wait(t, deleted, gone)
	// Waiting for the count, not for Stop: the watcher counts when it sees the deletion.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); testutil.ToFloat64(w.metrics.dropped) == 0 && time.Now().Before(deadline); {
		<-tick.C
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if got, want := left(s), []string{failing, plain, young}; !slices.Equal(got, want) {
		t.Errorf("%v are left, want %v", got, want)
	}
	if n := testutil.ToFloat64(w.metrics.dropped); n != 1 {
		t.Errorf("%v are counted", n)
	}
}

// TestReminders: one for each end, also of windows, and again after a failed one.
func TestReminders(t *testing.T) {
	s := testconfig.Store(t)
	now := time.Now()
	for name, change := range map[string]func(*resource.Silenced){
		"soon":  func(one *resource.Silenced) { one.ExpireAt, one.Remind = now.Unix()+50, 100 },
		"later": func(one *resource.Silenced) { one.ExpireAt, one.Remind = now.Unix()+500, 100 },
		"none":  func(one *resource.Silenced) { one.ExpireAt = now.Unix() + 50 },
		"never": func(one *resource.Silenced) { one.Remind = 100 },
		"window": func(one *resource.Silenced) {
			one.Begin, one.Remind = now.Unix()-30, 3599
			one.Windows = []resource.SilenceWindow{{RRule: "FREQ=DAILY", Duration: 3600}}
		},
		"closed": func(one *resource.Silenced) {
			one.Begin, one.Remind = now.Unix()-7200, 3599
			one.Windows = []resource.SilenceWindow{{RRule: "FREQ=DAILY", Duration: 3600}}
		},
	} {
		put(t, s, name, "", change)
	}
	w, err := NewWatcher(WatcherOptions{
		Config: s, Matcher: NewMatcher(nil, nil), Announce: func(context.Context, string, Covers) error { return nil },
		Count: func(context.Context, string, Covers) (int, int, error) { return 3, 2, nil }, Failing: func(string, string, string) bool { return true },
		Remind: func(context.Context, *Reminder) error { return errors.New("full") },
	})
	if err != nil {
		t.Fatal(err)
	}
	if next := w.look(t.Context(), now); next > retry {
		t.Errorf("after a failure it looks again after %s", next)
	}
	var got []string
	w.opts.Remind = func(_ context.Context, r *Reminder) error {
		got = append(got, r.Silence.Metadata.Name)
		if r.Events != 3 || r.Failing != 2 || !r.Ends.After(now) {
			t.Errorf("%+v", r)
		}
		return nil
	}
	look := func(after time.Duration, want ...string) {
		t.Helper()
		got = nil
		w.look(t.Context(), now.Add(after))
		if !slices.Equal(got, want) {
			t.Errorf("after %s: %v, want %v", after, got, want)
		}
	}
	look(0, "soon:*", "window:*")
	look(time.Second)
	look(401*time.Second, "later:*")
	look(24*time.Hour, "window:*")
	if sent, failed := testutil.ToFloat64(w.metrics.sent), testutil.ToFloat64(w.metrics.failed); sent != 4 || failed != 2 {
		t.Errorf("%v sent, %v failed", sent, failed)
	}
}

// TestAnnouncements: events that look different are announced when a silence begins, changes, ends or expires.
func TestAnnouncements(t *testing.T) {
	s := testconfig.Store(t)
	now := time.Now()
	cpu, disk := &resource.Silenceable{Namespace: "default", Check: "cpu", Traits: &resource.Traits{}}, &resource.Silenceable{Namespace: "default", Check: "disk", Traits: &resource.Traits{}}
	var mu sync.Mutex
	var got []string
	w, err := NewWatcher(WatcherOptions{
		Config: s, Matcher: NewMatcher(nil, nil), Count: func(context.Context, string, Covers) (int, int, error) { return 0, 0, nil },
		Failing: func(string, string, string) bool { return true }, Remind: func(context.Context, *Reminder) error { return nil },
		Announce: func(_ context.Context, namespace string, covers Covers) error {
			mu.Lock()
			defer mu.Unlock()
			for _, one := range []*resource.Silenceable{cpu, disk} {
				if covers(one) {
					got = append(got, namespace+"/"+one.Check)
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	look := func(what string, after time.Duration, want ...string) {
		t.Helper()
		got = nil
		w.look(t.Context(), now.Add(after))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	look("nothing", 0)
	selecting(t, s, "s", "", "event.check.name == cpu", nil)
	look("begun", 0, "default/cpu")
	look("unchanged", 0)
	selecting(t, s, "s", "", "event.check.name == disk", func(one *resource.Silenced) { one.ExpireAt = now.Unix() + 100 })
	look("another selection", 0, "default/cpu", "default/disk")
	look("expired", 200*time.Second, "default/disk")
	name := put(t, s, "", "disk", func(one *resource.Silenced) { one.Begin = now.Unix() + 300 })
	look("to come", 200*time.Second)
	look("come", 300*time.Second, "default/disk")
	if err := config.Delete(t.Context(), s, config.Silences, "default", name); err != nil {
		t.Fatal(err)
	}
	look("deleted", 300*time.Second, "default/disk")
}

// TestWatcherHears: a watcher notices changes by itself.
func TestWatcherHears(t *testing.T) {
	s := testconfig.Store(t)
	var told atomic.Int32
	heard := make(chan struct{}, 1000)
	watching(t, s, func(o *WatcherOptions) {
		o.Announce = func(context.Context, string, Covers) error {
			told.Add(1)
			heard <- struct{}{}
			return nil
		}
	})
	put(t, s, "", "disk", nil)
	select {
	case <-heard:
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
	}
}

// TestEndedDoNotApply while they wait to be deleted.
func TestEndedDoNotApply(t *testing.T) {
	s := testconfig.Store(t)
	m := NewMatcher(nil, nil)
	now := time.Unix(1_700_000_000, 0)
	name := put(t, s, "", "disk", func(one *resource.Silenced) { one.ExpireOnResolve, one.Begin = true, now.Unix() })
	match := func() int { return len(m.Match(s.Snapshot(), now, plain("default", "web1", "disk"), nil)) }
	id := resource.Name{Namespace: "default", Name: name}
	m.end(id, now.Add(-time.Minute)) // another one of the same name, earlier
	if match() != 1 {
		t.Error("it does not apply")
	}
	m.end(id, now)
	if match() != 0 {
		t.Error("it still applies")
	}
	m.forget(id)
	if match() != 1 {
		t.Error("it does not apply any more")
	}
}

func TestOrphans(t *testing.T) {
	s := testconfig.Store(t)
	for _, subscription := range []string{"entity:web1", "entity:web10", "web2"} {
		put(t, s, subscription, "", nil)
		put(t, s, subscription, "disk", nil)
	}
	web1 := &resource.EntityConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "web1"}, EntityClass: "agent"}
	if err := config.Put(t.Context(), s, config.Entities, web1); err != nil {
		t.Fatal(err)
	}
	var got []string
	for one := range Orphans(s.Snapshot(), "default") {
		got = append(got, one.Metadata.Name)
	}
	if want := []string{"entity:web10:*", "entity:web10:disk"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
