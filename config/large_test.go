package config_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// requireWorking fails unless definitions can still be written.
func requireWorking(t *testing.T, s *config.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := config.Put(ctx, s, config.Checks, check("default", "small")); err != nil {
		t.Errorf("the store takes no definitions any more: %v", err)
	}
}

// A definition that the broker cannot store is refused with its size and the limit.
func TestTooLargeDefinition(t *testing.T) {
	s, _ := start(t, t.TempDir())
	big := check("default", "big")
	big.Command = strings.Repeat("x", 9<<20)
	var tooLarge *resource.TooLargeError
	for name, write := range map[string]func() error{
		"create": func() error { return config.Create(t.Context(), s, config.Checks, big) },
		"put":    func() error { return config.Put(t.Context(), s, config.Checks, big) },
	} {
		if err := write(); !errors.As(err, &tooLarge) || tooLarge.Size < 9<<20 || tooLarge.Limit > 8<<20 || tooLarge.What != "checks/big" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	requireWorking(t, s)
}

// A long name in any request used to end the broker's only connection.
func TestTooLongName(t *testing.T) {
	s, _ := start(t, t.TempDir())
	long := strings.Repeat("n", 5000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var tooLarge *resource.TooLargeError
	if err := config.Create(ctx, s, config.Checks, check("default", long)); !errors.As(err, &tooLarge) {
		t.Errorf("create: got %.200v", err)
	}
	requireWorking(t, s)
	if err := config.Put(ctx, s, config.Checks, check("default", long)); !errors.As(err, &tooLarge) {
		t.Errorf("put: got %.200v", err)
	}
	if err := config.Delete(ctx, s, config.Checks, "default", long); !errors.Is(err, config.ErrNotFound) {
		t.Errorf("delete: got %.200v", err)
	}
	same := func(c *resource.CheckConfig) (*resource.CheckConfig, error) { return c, nil }
	if _, err := config.Update(ctx, s, config.Checks, "default", long, same); !errors.Is(err, config.ErrNotFound) {
		t.Errorf("update: got %.200v", err)
	}
	requireWorking(t, s)
	// The longest valid name, with every byte escaped.
	longest := &resource.Silenced{Metadata: resource.ObjectMeta{
		Namespace: strings.Repeat(".", 255), Name: strings.Repeat(".", 262) + ":" + strings.Repeat(":", 255),
	}}
	if err := config.Create(ctx, s, config.Silences, longest); err != nil {
		t.Errorf("longest name: %v", err)
	}
	if err := config.Delete(ctx, s, config.Silences, longest.Metadata.Namespace, longest.Metadata.Name); err != nil {
		t.Errorf("delete the longest name: %v", err)
	}
}
