package config_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestCopyAndRefill copies a bucket while it changes, and fills another one with the newest value of each key.
func TestCopyAndRefill(t *testing.T) {
	s, from := testconfig.WithBroker(t)
	put := func(ctx context.Context, name, command string) error {
		return config.Put(ctx, s, config.Checks, &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: command,
		})
	}
	const still = 50
	for n := range still {
		if err := put(t.Context(), fmt.Sprint("still-", n), "true"); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(t.Context(), "gone.", "true"); err != nil {
		t.Fatal(err)
	}
	if err := config.Delete(t.Context(), s, config.Checks, "default", "gone."); err != nil {
		t.Fatal(err)
	}
	secret, err := s.Secret(t.Context(), "key", 8)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil; n++ {
			_ = put(ctx, fmt.Sprint("moving-", n%5), fmt.Sprint("true ", n))
		}
	}()
	values := map[string][]byte{}
	last := uint64(0)
	err = config.Copy(t.Context(), from, func(c *config.Copied) error {
		if last >= c.Seq {
			t.Errorf("revision %d comes after %d", c.Seq, last)
		}
		last = c.Seq
		if delete(values, c.Key); !c.Deletes() {
			values[c.Key] = slices.Clone(c.Data)
		}
		return nil
	})
	cancel()
	<-ended
	if err != nil {
		t.Fatal(err)
	}

	b, err := broker.New(broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Stop() }()
	// The first time it is interrupted.
	for _, few := range []int{3, len(values)} {
		err = config.Refill(t.Context(), b, 5000, func(add func(string, []byte) error) error {
			for _, key := range slices.Sorted(maps.Keys(values))[:few] {
				if err := add(key, values[key]); err != nil {
					return err
				}
			}
			if err := add("two.parts", nil); err == nil {
				t.Error("a key that no store could read was taken")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	again, err := config.New(config.Options{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Stop() }()
	names := map[string]bool{}
	for c := range config.List(again.Snapshot(), config.Checks, "") {
		names[c.Metadata.Name] = true
	}
	for n := range still {
		if name := fmt.Sprint("still-", n); !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if names["gone."] {
		t.Error("a deleted definition is there")
	}
	if got, err := again.Secret(t.Context(), "key", 8); err != nil || !slices.Equal(got, secret) {
		t.Errorf("the secret is %x, %v; want %x", got, err, secret)
	}
	if rev := again.Snapshot().Revision(); rev < 5000 {
		t.Errorf("the revision is %d", rev)
	}
}
