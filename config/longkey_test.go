package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestLongName writes, changes and deletes what has a name that the broker would close the connection for. It is refused, and the
// store goes on.
func TestLongName(t *testing.T) {
	s := testconfig.Store(t)
	name := strings.Repeat("\x01", 100_000)
	check := func(name string) *resource.CheckConfig {
		return &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}}
	}
	if err := config.Put(t.Context(), s, config.Checks, check(name)); err == nil {
		t.Error("a name of 100,000 bytes was taken")
	}
	if err := config.Delete(t.Context(), s, config.Checks, "default", name); !errors.Is(err, config.ErrNotFound) {
		t.Errorf("delete: %v", err)
	}
	if _, err := config.Update(t.Context(), s, config.Checks, "default", name, func(c *resource.CheckConfig) (*resource.CheckConfig, error) {
		return c, nil
	}); !errors.Is(err, config.ErrNotFound) {
		t.Errorf("update: %v", err)
	}
	if err := config.Put(t.Context(), s, config.Checks, check("short")); err != nil {
		t.Errorf("after that: %v", err)
	}
}
