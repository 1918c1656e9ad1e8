package backend_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
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

// TestPostgresDefinitionBesideFlag: a definition that --postgres-dsn makes useless is logged, by name and without its
// DSN.
func TestPostgresDefinitionBesideFlag(t *testing.T) {
	logged := make(unusedDefinitions, 8)
	b := testbackend.Start(t, func(o *testbackend.Options) {
		o.Postgres.DSN = "postgres://lapwing@127.0.0.1:1/x" // a port that nothing listens on
		o.Logger = slog.New(slog.NewTextHandler(logged, nil))
	})
	definition := resource.PostgresConfig{
		Metadata: resource.ObjectMeta{Name: "reports"},
		Spec:     resource.PostgresSpec{DSN: "postgres://u:s3cret@127.0.0.1:1/y"},
	}
	err := b.Client.Do(t.Context(), http.MethodPut, "/api/enterprise/store/v1/provider/reports", definition, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-logged:
		if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "name=reports") || strings.Contains(line, "s3cret") {
			t.Errorf("logged: %s", line)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was logged about the definition")
	}
}

// unusedDefinitions gets the lines of a log about definitions that have no effect.
type unusedDefinitions chan string

func (c unusedDefinitions) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "--postgres-dsn is set") {
		c <- string(line)
	}
	return len(line), nil
}

// TestPostgresEvent: a backend that keeps changes for a database that is away, on a disk that is nearly full, says so by
// an event.
func TestPostgresEvent(t *testing.T) {
	dir := t.TempDir()
	start := func(t *testing.T) *testbackend.Backend {
		return testbackend.Start(t, func(o *testbackend.Options) {
			*o = testbackend.OptionsIn(dir)
			o.Postgres.DSN, o.Postgres.Journal.MinFree = "postgres://lapwing@127.0.0.1:1/x", 1<<60
		})
	}
	const events = "/api/core/v2/namespaces/default/events"
	t.Run("one change", func(t *testing.T) {
		b := start(t)
		body := map[string]any{"entity": testbackend.Entity("web"), "check": map[string]any{
			"metadata": map[string]any{"name": "disk", "namespace": "default"}, "interval": 60, "status": 0,
		}}
		if err := b.Client.Do(t.Context(), http.MethodPost, events, body, nil); err != nil {
			t.Fatal(err)
		}
	})
	b := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ev resource.Event
	for {
		err := b.Client.Do(ctx, http.MethodGet, events+"/"+resource.BackendEntity+"/postgres", nil, &ev)
		if err == nil {
			break
		}
		if !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("there is no event about PostgreSQL")
		}
	}
	for _, part := range []string{"the oldest changes are lost", "make room on the disk of the state directory", "lapwing postgres status"} {
		if ev.Check.Status != 2 || !strings.Contains(ev.Check.Output, part) {
			t.Errorf("status %d, %q lacks %q", ev.Check.Status, ev.Check.Output, part)
		}
	}
}
