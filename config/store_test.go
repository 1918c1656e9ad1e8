package config_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func start(t *testing.T, dir string) (*config.Store, func()) {
	t.Helper()
	b, err := broker.New(broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := config.New(config.Options{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop := func() { once.Do(func() { _ = s.Stop(); _ = b.Stop() }) }
	t.Cleanup(stop)
	return s, stop
}

func check(ns, name string) *resource.CheckConfig {
	return &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: ns, Name: name}, Command: "true", Interval: 1}
}

// TestWritten: the time of a write survives a restart.
func TestWritten(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir)
	begin := time.Now().Truncate(time.Millisecond)
	if err := config.Put(t.Context(), s, config.Checks, check("default", "a.b:c")); err != nil {
		t.Fatal(err)
	}
	at := config.Written(s, config.Checks, "default", "a.b:c")
	if at.Before(begin) || at.After(time.Now()) {
		t.Errorf("written at %v, after %v", at, begin)
	}
	stop()
	s, _ = start(t, dir)
	if got := config.Written(s, config.Checks, "default", "a.b:c"); !got.Equal(at) {
		t.Errorf("written at %v, and at %v after a restart", at, got)
	}
	if err := config.Delete(t.Context(), s, config.Checks, "default", "a.b:c"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.b:c", "none"} {
		if got := config.Written(s, config.Checks, "default", name); !got.IsZero() {
			t.Errorf("%s is not there, and was written at %v", name, got)
		}
	}
}

func TestWritesAreReadBack(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir)
	ctx := t.Context()
	if err := config.Create(ctx, s, config.Checks, check("default", "a.b:c")); err != nil {
		t.Fatal(err)
	}
	if _, ok := config.Get(s.Snapshot(), config.Checks, "default", "a.b:c"); !ok {
		t.Fatal("a created check is not in the snapshot")
	}
	if err := config.Create(ctx, s, config.Checks, check("default", "a.b:c")); !errors.Is(err, config.ErrExists) {
		t.Fatalf("second create: %v, want ErrExists", err)
	}
	got, err := config.Update(ctx, s, config.Checks, "default", "a.b:c", func(c *resource.CheckConfig) (*resource.CheckConfig, error) {
		c.Interval = 7
		return c, nil
	})
	if err != nil || got.Interval != 7 {
		t.Fatalf("update: %v %v", got, err)
	}
	stop()

	s, _ = start(t, dir)
	c, ok := config.Get(s.Snapshot(), config.Checks, "default", "a.b:c")
	if !ok || c.Interval != 7 {
		t.Fatalf("after a restart: %v %v, want interval 7", c, ok)
	}
	if err := config.Delete(ctx, s, config.Checks, "default", "a.b:c"); err != nil {
		t.Fatal(err)
	}
	if _, ok := config.Get(s.Snapshot(), config.Checks, "default", "a.b:c"); ok {
		t.Fatal("a deleted check is still in the snapshot")
	}
	if err := config.Delete(ctx, s, config.Checks, "default", "a.b:c"); !errors.Is(err, config.ErrNotFound) {
		t.Fatalf("second delete: %v, want ErrNotFound", err)
	}
	if _, err := config.Update(ctx, s, config.Checks, "default", "gone", nil); !errors.Is(err, config.ErrNotFound) {
		t.Fatalf("update of nothing: %v, want ErrNotFound", err)
	}
}

func TestListIsOrderedAndResumes(t *testing.T) {
	s, _ := start(t, t.TempDir())
	for _, key := range [][2]string{{"b", "x"}, {"a", "z"}, {"a", "a"}, {"a-b", "m"}, {"a", "m"}} {
		if err := config.Put(t.Context(), s, config.Checks, check(key[0], key[1])); err != nil {
			t.Fatal(err)
		}
	}
	list := func(ns, afterNS, after string) []string {
		var names []string
		for c := range config.ListAfter(s.Snapshot(), config.Checks, ns, afterNS, after) {
			names = append(names, c.Metadata.Namespace+"/"+c.Metadata.Name)
		}
		return names
	}
	for _, tc := range []struct {
		ns, afterNS, after string
		want               []string
	}{
		{"", "", "", []string{"a/a", "a/m", "a/z", "a-b/m", "b/x"}},
		{"a", "", "", []string{"a/a", "a/m", "a/z"}},
		{"a", "a", "a", []string{"a/m", "a/z"}},
		{"a", "a", "b", []string{"a/m", "a/z"}},
		{"", "a", "z", []string{"a-b/m", "b/x"}},
		{"b", "", "", []string{"b/x"}},
		{"none", "", "", nil},
	} {
		if got := list(tc.ns, tc.afterNS, tc.after); !slices.Equal(got, tc.want) {
			t.Errorf("list %q after %q/%q = %v, want %v", tc.ns, tc.afterNS, tc.after, got, tc.want)
		}
	}
}

func TestConcurrentUpdatesLoseNothing(t *testing.T) {
	s, _ := start(t, t.TempDir())
	if err := config.Create(t.Context(), s, config.Checks, check("default", "n")); err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				if _, err := config.Update(t.Context(), s, config.Checks, "default", "n",
					func(c *resource.CheckConfig) (*resource.CheckConfig, error) {
						c.Timeout++
						return c, nil
					}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c, _ := config.Get(s.Snapshot(), config.Checks, "default", "n")
	if c.Timeout != writers*each {
		t.Fatalf("counted %d, want %d: an update was lost", c.Timeout, writers*each)
	}
}

func TestChangesArriveInOrder(t *testing.T) {
	s, _ := start(t, t.TempDir())
	var mu sync.Mutex
	var got []string
	cancel := s.OnChange(func(c config.Change) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(c.Kind, " ", c.Name, " ", c.Deleted))
	})
	ctx := context.Background()
	_ = config.Put(ctx, s, config.Checks, check("default", "a"))
	_ = config.Put(ctx, s, config.Handlers, &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: "h"}})
	_ = config.Delete(ctx, s, config.Checks, "default", "a")
	cancel()
	_ = config.Put(ctx, s, config.Checks, check("default", "later"))
	mu.Lock()
	defer mu.Unlock()
	want := []string{"checks a false", "handlers h false", "checks a true"}
	if !slices.Equal(got, want) {
		t.Fatalf("changes %v, want %v", got, want)
	}
}

func TestSecretIsMadeOnce(t *testing.T) {
	s, _ := start(t, t.TempDir())
	a, err := s.Secret(t.Context(), "jwt", 32)
	if err != nil || len(a) != 32 {
		t.Fatalf("secret: %d bytes, %v", len(a), err)
	}
	b, err := s.Secret(t.Context(), "jwt", 32)
	if err != nil || !slices.Equal(a, b) {
		t.Fatal("the second read gives another secret")
	}
}
