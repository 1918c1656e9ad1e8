package config

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestPostgres: of several definitions the first by name is used.
func TestPostgres(t *testing.T) {
	sn := Empty()
	if p, ok := Postgres(sn); ok {
		t.Errorf("without a definition: %+v", p)
	}
	for _, name := range []string{"m", "z", "b"} {
		sn = With(sn, PostgresConfigs, &resource.PostgresConfig{Metadata: resource.ObjectMeta{Name: name}})
	}
	if p, ok := Postgres(sn); !ok || p.Metadata.Name != "b" {
		t.Errorf("of m, z and b: %+v, %t", p, ok)
	}
}
