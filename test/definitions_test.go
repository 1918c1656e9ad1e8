package test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestRealDefinitionsInPostgres changes definitions of a backend that has a copy of them in PostgreSQL.
func TestRealDefinitionsInPostgres(t *testing.T) {
	dsn := testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN()
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Postgres.DSN = dsn })
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	await := func(sql, want string) {
		t.Helper()
		eventually(t, time.Minute, sql+": "+want, func() bool {
			var got string
			return conn.QueryRow(t.Context(), sql).Scan(&got) == nil && got == want // there may be no table yet
		})
	}
	do := func(method, path string, in any) {
		t.Helper()
		if err := b.Client.Do(t.Context(), method, "/api/core/v2/namespaces/default/"+path, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "disk"}, Command: "true", Interval: 3600, Publish: true,
		Subscriptions: []string{"linux"}, EnvVars: []string{"DB_PASSWORD=hunter2"},
	}
	do(http.MethodPut, "checks/disk", check)
	do(http.MethodPost, "silenced", &resource.Silenced{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "*:disk"}, Check: "disk", Reason: "it is full"})
	agent, _ := b.DialAgent(t, "web1", nil)
	keepalives := func(n int) {
		t.Helper()
		for range n {
			if err := agent.Write(testbackend.Keepalive(t, "web1", wire.Protobuf)); err != nil {
				t.Fatal(err)
			}
		}
	}
	keepalives(2)
	await("SELECT definition #>> '{env_vars,0}' FROM lapwing.checks", "DB_PASSWORD="+resource.Redacted)
	await("SELECT creator || ': ' || reason FROM lapwing.silences", testbackend.User+": it is full")
	await("SELECT class || ' ' || subscriptions FROM lapwing.entities", `agent ["linux", "entity:web1"]`)

	keepalives(5)
	await("SELECT count(*)::text FROM lapwing.events WHERE \"check\" = 'keepalive'", "7")
	check.Interval = 1800
	do(http.MethodPut, "checks/disk", check)
	do(http.MethodDelete, "silenced/*:disk", nil)
	await("SELECT count(*)::text FROM lapwing.checks", "2")
	await("SELECT interval::text FROM lapwing.checks WHERE until IS NULL", "1800")
	await("SELECT count(*)::text FROM lapwing.silences WHERE until IS NOT NULL", "1")
	await("SELECT count(*)::text FROM lapwing.entities", "1")
	var all string
	if err := conn.QueryRow(t.Context(), "SELECT string_agg(object::text, '') FROM lapwing_data.definition").Scan(&all); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(all, "hunter2") {
		t.Errorf("a secret is in PostgreSQL: %s", all)
	}
}
