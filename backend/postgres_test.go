package backend_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// TestPostgresAway: without its database a backend starts and is ready, and /health says that PostgreSQL is away.
func TestPostgresAway(t *testing.T) {
	get := func(b *testbackend.Backend, path string) string {
		t.Helper()
		resp, err := http.Get("http://" + b.APIAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %s %v: %s", path, resp.Status, err, body)
		}
		return string(body)
	}
	b := testbackend.Start(t, func(o *testbackend.Options) {
		o.Postgres.DSN = "postgres://lapwing:s3cret@127.0.0.1:1/x" // a port that nothing listens on
	})
	if text := get(b, "/ready"); text != "ready\n" {
		t.Errorf("/ready: %q", text)
	}
	health := get(b, "/health")
	for _, want := range []string{
		`"Err":"","Healthy":true}],"Header"`,
		`"PostgresHealth":[{"Name":"postgres","Err":"PostgreSQL is not written to`, `"Active":true,"Healthy":false}]`,
	} {
		if !strings.Contains(health, want) {
			t.Errorf("/health lacks %s: %s", want, health)
		}
	}
	if strings.Contains(health, "127.0.0.1:1") || strings.Contains(health, "s3cret") {
		t.Errorf("/health is public, and says too much: %s", health)
	}
	members, err := b.Client.Postgres(t.Context())
	if err != nil || len(members) != 1 || !members[0].Configured || members[0].Connected || members[0].Journal.MaxBytes == 0 {
		t.Errorf("status: %+v, %v", members, err)
	}
	without := testbackend.Start(t, nil)
	if text := get(without, "/health"); strings.Contains(text, "Postgres") {
		t.Errorf("/health without PostgreSQL: %s", text)
	}
}
