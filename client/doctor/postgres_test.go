package doctor_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/client/doctor"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
)

const gigabyte = 1 << 30

// wellPostgres returns the facts of a busy server about which there is nothing to say.
func wellPostgres() *doctor.PostgresFacts {
	set := func(value, unit string) doctor.PostgresSetting {
		return doctor.PostgresSetting{Value: value, Unit: unit, Shown: value + unit}
	}
	return &doctor.PostgresFacts{
		Version: 150000, Name: "15.0", Where: "db:5432/lapwing", Database: "lapwing", Uptime: 1e6, Since: 1e5, Monitor: true,
		Memory: 16 * gigabyte, Size: 20 * gigabyte, HitShare: 0.99, OldestDB: "lapwing", OldestXID: 1e6, Timed: 100, Requested: 2,
		WAL: doctor.PostgresWAL{Bytes: 5 * gigabyte, FullPages: 1000, Seconds: 1e5},
		Settings: map[string]doctor.PostgresSetting{
			"track_counts": set("on", ""), "autovacuum": set("on", ""), "fsync": set("on", ""), "full_page_writes": set("on", ""),
			"synchronous_commit": set("off", ""), "synchronous_standby_names": set("", ""), "autovacuum_freeze_max_age": set("200000000", ""),
			"autovacuum_vacuum_scale_factor": set("0.2", ""), "autovacuum_vacuum_insert_scale_factor": set("0.2", ""),
			"autovacuum_vacuum_insert_threshold": set("1000", ""), "autovacuum_vacuum_cost_limit": set("-1", ""), "vacuum_cost_limit": set("2000", ""),
			"autovacuum_vacuum_cost_delay": set("2", "ms"), "vacuum_cost_page_dirty": set("20", ""), "autovacuum_naptime": set("15", "s"),
			"max_wal_size": set("8192", "MB"), "checkpoint_timeout": set("900", "s"), "checkpoint_completion_target": set("0.9", ""),
			"wal_compression": {Value: "off", Choices: []string{"pglz", "lz4", "on", "off"}}, "wal_buffers": set("2048", "8kB"),
			"shared_buffers": {Value: "524288", Unit: "8kB", Shown: "4GB", Restart: true}, "random_page_cost": set("1.1", ""),
			"effective_io_concurrency": set("200", ""), "idle_in_transaction_session_timeout": set("0", "ms"),
			"max_slot_wal_keep_size": set("-1", "MB"),
		},
		Tables: []doctor.PostgresTable{
			{
				Name: "lapwing_data.latest", Live: 1e5, Dead: 1000, Inserts: 1e5, Updates: 5e7, Hot: 4.9e7, Vacuumed: 60, Size: 1e8,
				Options: map[string]string{"autovacuum_vacuum_scale_factor": "0.05", "fillfactor": "50"},
			},
			{Name: "lapwing_data.event_1", Parent: "lapwing_data.event", Live: 1e7, Inserts: 1e7, Vacuumed: math.Inf(1), Size: 2e9},
		},
	}
}

func value(g *doctor.PostgresFacts, name, value string) {
	s := g.Settings[name]
	s.Value, s.Shown = value, value+s.Unit
	g.Settings[name] = s
}

func TestPostgresRules(t *testing.T) {
	well := wellPostgres()
	if r := doctor.ExaminePostgres(well); len(r.Findings)+len(r.Unread) > 0 || r.Severity != doctor.Fine {
		t.Fatalf("of a good server: %+v", r)
	}
	// f changes the good server. want has severity, subject and a part of the SQL of each finding.
	f := func(change func(g *doctor.PostgresFacts), want ...string) {
		t.Helper()
		g := wellPostgres()
		change(g)
		got := []string{}
		worst := doctor.Fine
		for _, finding := range doctor.ExaminePostgres(g).Findings {
			got = append(got, fmt.Sprintf("%s %s: %s", finding.Severity, finding.Subject, strings.Join(finding.SQL, " ")))
			worst = max(worst, finding.Severity)
			if finding.Part != doctor.Postgres || finding.Title == "" || finding.Detail == "" || finding.Advice == "" || strings.Contains(finding.Detail, "%!") {
				t.Errorf("unfinished: %+v", finding)
			}
		}
		if r := doctor.ExaminePostgres(g); r.Severity != worst {
			t.Errorf("severity %s, want %s", r.Severity, worst)
		}
		if !slices.EqualFunc(got, want, func(g, w string) bool {
			head, sql, _ := strings.Cut(w, ": ")
			return strings.HasPrefix(g, head+": ") && strings.Contains(g, sql)
		}) {
			t.Errorf("found:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	setting := func(name, v string, want ...string) {
		t.Helper()
		f(func(g *doctor.PostgresFacts) { value(g, name, v) }, want...)
	}
	latest := func(change func(*doctor.PostgresTable), want ...string) {
		t.Helper()
		f(func(g *doctor.PostgresFacts) { change(&g.Tables[0]) }, want...)
	}
	session := func(s doctor.PostgresSession, want ...string) {
		t.Helper()
		f(func(g *doctor.PostgresFacts) { g.Sessions = []doctor.PostgresSession{s} }, want...)
	}
	slot := func(s doctor.PostgresSlot, want ...string) {
		t.Helper()
		f(func(g *doctor.PostgresFacts) { g.Slots = []doctor.PostgresSlot{s} }, want...)
	}

	f(func(g *doctor.PostgresFacts) { g.Standby = true }, "critical standby: ")
	setting("track_counts", "off", "critical track_counts: SET track_counts = 'on'; SELECT pg_reload_conf();")
	setting("fsync", "off", "critical fsync: SET fsync = 'on'")
	setting("full_page_writes", "off", "critical full_page_writes: 'on'")

	alone := func(replicas ...doctor.PostgresReplica) func(*doctor.PostgresFacts) {
		return func(g *doctor.PostgresFacts) {
			value(g, "synchronous_standby_names", "*")
			value(g, "synchronous_commit", "on")
			g.Replicas = replicas
		}
	}
	f(alone(), "critical synchronous_standby_names: = ''", "fine synchronous_commit: ")
	f(alone(doctor.PostgresReplica{Name: "b", Sync: "sync"}), "fine synchronous_commit: ")
	f(func(g *doctor.PostgresFacts) {
		g.Replicas = []doctor.PostgresReplica{{Name: "b", Behind: 2 * gigabyte}}
	}, "warning replica b: ")

	f(func(g *doctor.PostgresFacts) { g.OldestXID = 499e6 })
	f(func(g *doctor.PostgresFacts) { g.OldestXID = 501e6 }, "warning wraparound: VACUUM (FREEZE")
	f(func(g *doctor.PostgresFacts) { g.OldestXID = 1.3e9 }, "critical wraparound: ")

	setting("autovacuum", "off", "critical autovacuum: 'on'")
	latest(func(t *doctor.PostgresTable) { t.Options["autovacuum_enabled"] = "false" },
		"critical lapwing_data.latest: ALTER TABLE lapwing_data.latest RESET (autovacuum_enabled);")
	latest(func(t *doctor.PostgresTable) { t.Options["autovacuum_enabled"] = "on" })

	session(doctor.PostgresSession{PID: 7, State: "idle in transaction", Idle: 299, Open: 299})
	session(doctor.PostgresSession{PID: 7, State: "idle in transaction", Idle: 301, Open: 301}, "warning session 7: pg_terminate_backend(7)",
		"warning idle_in_transaction_session_timeout: '10min'")
	session(doctor.PostgresSession{PID: 8, State: "active", Open: 1801, Holds: 5}, "warning session 8: ")
	session(doctor.PostgresSession{PID: 8, State: "active", Open: 1801})
	session(doctor.PostgresSession{Prepared: "it's", State: "prepared", Open: 301}, "warning prepared transaction it's: ROLLBACK PREPARED 'it''s';")

	latest(func(t *doctor.PostgresTable) { t.Dead = 3e4 }, "warning lapwing_data.latest: VACUUM (ANALYZE) lapwing_data.latest;")
	latest(func(t *doctor.PostgresTable) { t.Dead, t.Live = 3000, 1000 })
	latest(func(t *doctor.PostgresTable) { delete(t.Options, "autovacuum_vacuum_scale_factor") },
		"warning lapwing_data.latest: ALTER TABLE lapwing_data.latest SET (autovacuum_vacuum_scale_factor = 0.05")
	latest(func(t *doctor.PostgresTable) { t.Hot = 3e7 }, "warning lapwing_data.latest: pg_get_indexdef")
	latest(func(t *doctor.PostgresTable) { t.Hot, t.Options["fillfactor"] = 3e7, "100" }, "warning lapwing_data.latest: SET (fillfactor = 50);")
	latest(func(t *doctor.PostgresTable) { t.Hot = 3e7; delete(t.Options, "fillfactor") }, "warning lapwing_data.latest: SET (fillfactor = 50);")

	setting("autovacuum_vacuum_insert_scale_factor", "0.9", "warning autovacuum_vacuum_insert_scale_factor: '0.2'")
	setting("autovacuum_vacuum_insert_scale_factor", "0.01", "warning autovacuum_vacuum_insert_scale_factor: '0.2'")
	setting("autovacuum_vacuum_insert_threshold", "-1", "warning autovacuum_vacuum_insert_threshold: '1000'")
	f(func(g *doctor.PostgresFacts) {
		g.Tables[1].Options = map[string]string{"autovacuum_vacuum_insert_threshold": "-1"}
	},
		"warning lapwing_data.event_1: ALTER TABLE lapwing_data.event_1 RESET (autovacuum_vacuum_insert_threshold);")

	idle := func(change func(*doctor.PostgresFacts)) func(*doctor.PostgresFacts) {
		return func(g *doctor.PostgresFacts) { g.Since = 1e9; change(g) }
	}
	setting("vacuum_cost_limit", "200", "warning autovacuum_vacuum_cost_limit: '2000'")
	f(idle(func(g *doctor.PostgresFacts) { value(g, "vacuum_cost_limit", "200") }))
	setting("autovacuum_vacuum_cost_delay", "20", "warning autovacuum_vacuum_cost_limit: autovacuum_vacuum_cost_delay = '2ms'")
	setting("autovacuum_vacuum_cost_delay", "0")
	setting("autovacuum_naptime", "60", "warning autovacuum_naptime: '15s'")
	f(idle(func(g *doctor.PostgresFacts) { value(g, "autovacuum_naptime", "60") }))
	setting("autovacuum_naptime", "300", "warning autovacuum_naptime: '15s'")

	setting("max_wal_size", "512", "warning max_wal_size: '4GB'")
	f(func(g *doctor.PostgresFacts) { g.Requested, g.Timed = 19, 0 }) // restarts, backups or people
	f(func(g *doctor.PostgresFacts) { g.Requested, g.Timed = 20, 81 })
	f(func(g *doctor.PostgresFacts) { g.Requested, g.Timed = 20, 79 }, "warning max_wal_size: ")
	f(func(g *doctor.PostgresFacts) { g.Requested = 50; g.WAL.Bytes = 1e5 * 1e7 }, "warning max_wal_size: '21GB'")
	setting("checkpoint_timeout", "300", "warning checkpoint_timeout: '15min'")
	f(idle(func(g *doctor.PostgresFacts) { value(g, "checkpoint_timeout", "300") }))
	setting("checkpoint_completion_target", "0.5", "warning checkpoint_completion_target: '0.9'")
	f(func(g *doctor.PostgresFacts) { g.WAL.FullPages = 5e5 }, "warning wal_compression: 'lz4'")
	f(func(g *doctor.PostgresFacts) { g.WAL.BuffersFull = 2e4 }, "warning wal_buffers: '64MB'")
	setting("wal_buffers", "64", "warning wal_buffers: '64MB'")
	setting("synchronous_commit", "on", `fine synchronous_commit: ALTER DATABASE "lapwing" SET synchronous_commit = off; `+
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lapwing' AND datname = 'lapwing';`)
	f(func(g *doctor.PostgresFacts) { g.Tables = nil; value(g, "synchronous_commit", "on") }) // of another program, perhaps

	slot(doctor.PostgresSlot{Name: "old", Kept: gigabyte / 2})
	slot(doctor.PostgresSlot{Name: "old", Kept: 2 * gigabyte, Active: true})
	slot(doctor.PostgresSlot{Name: "old", Kept: 2 * gigabyte}, "warning slot old: pg_drop_replication_slot('old')",
		"warning max_slot_wal_keep_size: '20GB'")
	slot(doctor.PostgresSlot{Name: "old", Kept: 60 * gigabyte}, "critical slot old: ", "warning max_slot_wal_keep_size: ")
	slot(doctor.PostgresSlot{Name: "old", Status: "lost"}, "warning slot old: ", "warning max_slot_wal_keep_size: ")

	setting("shared_buffers", "16384", "warning shared_buffers: SET shared_buffers = '4096MB'; -- and restart")
	setting("shared_buffers", "1048576", "warning shared_buffers: '4096MB'")
	f(func(g *doctor.PostgresFacts) { g.Memory, g.HitShare = 0, 0.5; value(g, "shared_buffers", "16384") }, "warning shared_buffers: '1024MB'")
	setting("random_page_cost", "4", "fine random_page_cost: '1.1'")
	setting("effective_io_concurrency", "1", "fine effective_io_concurrency: '200'")

	days := func(sizes ...float64) func(*doctor.PostgresFacts) {
		return func(g *doctor.PostgresFacts) {
			g.Tables = nil
			for i, size := range sizes {
				g.Tables = append(g.Tables, doctor.PostgresTable{
					Name: fmt.Sprint("lapwing_data.event_", i), Parent: "lapwing_data.event", Live: min(size, 1e6), Inserts: 1e6, Size: size,
				})
			}
		}
	}
	f(days(2e9, 2e9, 2e9, 2e9, 1e9))
	f(days(2e9, 2e9, 2e9, 5e9, 1e9, 0), "warning lapwing_data.event: FROM lapwing_data.event_3")
	f(days(2e9, 5e9, 1e9))
	f(days(2e7, 2e7, 2e7, 5e7, 1e7))
}

// TestPostgresUnread: what cannot be seen is said, and no reason to warn.
func TestPostgresUnread(t *testing.T) {
	for want, change := range map[string]func(*doctor.PostgresFacts){
		"lapwing_data": func(g *doctor.PostgresFacts) { g.Tables = nil },
		"pg_monitor":   func(g *doctor.PostgresFacts) { g.Monitor = false },
		"PgBouncer":    func(g *doctor.PostgresFacts) { g.Pooled = true },
		"memory":       func(g *doctor.PostgresFacts) { g.Memory = 0 },
		"pg_stat_wal":  func(g *doctor.PostgresFacts) { g.WAL = doctor.PostgresWAL{} },
	} {
		g := wellPostgres()
		change(g)
		if r := doctor.ExaminePostgres(g); len(r.Unread) != 1 || !strings.Contains(r.Unread[0], want) || len(r.Findings) > 0 {
			t.Errorf("%s: %+v", want, r)
		}
	}
}

func TestPostgresText(t *testing.T) {
	g := wellPostgres()
	value(g, "checkpoint_completion_target", "0.5")
	value(g, "random_page_cost", "4")
	g.Pooled = true
	var b bytes.Buffer
	if err := doctor.WritePostgresText(&b, doctor.ExaminePostgres(g)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"PostgreSQL 15.0 at db:5432/lapwing, up 12 days\n", "\nWARNING postgres checkpoint_completion_target: checkpoints write in bursts\n",
		"\n    Now 0.5, recommended 0.9.\n      ALTER SYSTEM SET checkpoint_completion_target = '0.9';\n      SELECT pg_reload_conf();\n",
		"\nNOTE postgres random_page_cost: ", "\nNot examined:\n  - A pooler",
		"; checkpoints: 100 in time, 2 on request (WAL was full, or ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s\nlacks %q", &b, want)
		}
	}
	// A database without lapwing's tables is the first thing to know.
	g.Tables = nil
	b.Reset()
	if err := doctor.WritePostgresText(&b, doctor.ExaminePostgres(g)); err != nil {
		t.Fatal(err)
	}
	_, second, _ := strings.Cut(b.String(), "\n")
	if !strings.HasPrefix(second, "The database lapwing has no tables of lapwing.") {
		t.Errorf("without tables: %s", &b)
	}
}

// TestPostgresPasswordIsNotShown: neither a DSN that cannot be parsed nor a failed connection shows a password.
func TestPostgresPasswordIsNotShown(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:sekret/sekret@127.0.0.1/x", "postgres://u:sekret@127.0.0.1:sekret/x", "postgres://u:sekret@127.0.0.1:1/x", "postgres://u:%sekret@h/x",
		"host=127.0.0.1 port=1 user=u password=sekret", "host=127.0.0.1 password='sekret", "sekret", "user=u port=sekret password=sekret",
		"postgres://u:sekret@127.0.0.1:1/x?sslmode=sekret", "postgres://127.0.0.1:1/x?password=sekret",
		"host=127.0.0.1 password = sekret sslrootcert=/tmp/missing/x.pem", "postgres://u:a@sekret@127.0.0.1/x",
	} {
		_, err := doctor.FetchPostgres(t.Context(), dsn)
		if err == nil || strings.Contains(err.Error(), "sekret") {
			t.Errorf("%s: error %v", dsn, err)
		}
	}
}

// wellSettings are for a small server on an SSD.
var wellSettings = map[string]string{
	"synchronous_commit": "off", "random_page_cost": "1.1", "effective_io_concurrency": "200", "max_wal_size": "4GB",
	"checkpoint_timeout": "15min", "autovacuum_naptime": "15s", "autovacuum_vacuum_cost_limit": "2000", "wal_buffers": "64MB",
	"checkpoint_completion_target": "0.9", "max_prepared_transactions": "1",
}

func connectPostgres(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func statements(t *testing.T, conn *pgx.Conn, list ...string) {
	t.Helper()
	for _, sql := range list {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func examine(t *testing.T, dsn string) *doctor.PostgresReport {
	t.Helper()
	facts, err := doctor.FetchPostgres(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	return doctor.ExaminePostgres(facts)
}

// lapwingTables are as a backend makes them, with 20,000 rows of results and a partition of events.
var lapwingTables = []string{
	"CREATE SCHEMA lapwing_data",
	"CREATE TABLE lapwing_data.latest (pair_id bigint PRIMARY KEY, received timestamptz) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)",
	"CREATE TABLE lapwing_data.event (received timestamptz, pair_id bigint) PARTITION BY RANGE (received)",
	"CREATE TABLE lapwing_data.event_p2030_01_02 PARTITION OF lapwing_data.event FOR VALUES FROM ('2030-01-02') TO ('2030-01-03')",
	"INSERT INTO lapwing_data.latest SELECT n, now() FROM generate_series(1, 20000) n",
	"INSERT INTO lapwing_data.event SELECT '2030-01-02', n FROM generate_series(1, 20000) n",
}

func TestRealPostgresWell(t *testing.T) {
	s := testpostgres.Start(t, testpostgres.Options{Settings: wellSettings})
	dsn := s.Database(t)
	statements(t, connectPostgres(t, dsn), slices.Concat(lapwingTables, []string{"VACUUM ANALYZE", "SELECT pg_stat_force_next_flush()", "SELECT 1"})...)
	r := examine(t, dsn)
	if len(r.Findings) > 0 || len(r.Unread) > 0 || r.Severity != doctor.Fine {
		t.Errorf("of a good server: %+v", r)
	}
}

func TestRealPostgresIll(t *testing.T) {
	settings := maps.Clone(wellSettings)
	maps.Copy(settings, map[string]string{
		"autovacuum": "off", "max_wal_size": "64MB", "min_wal_size": "32MB", "checkpoint_timeout": "1min", "checkpoint_completion_target": "0.3",
		"wal_buffers": "64kB", "random_page_cost": "4", "effective_io_concurrency": "0", "synchronous_commit": "on", "fsync": "off",
		"autovacuum_naptime": "10min", "autovacuum_vacuum_cost_limit": "50", "shared_buffers": "1MB", "autovacuum_vacuum_insert_threshold": "-1",
	})
	s := testpostgres.Start(t, testpostgres.Options{Settings: settings})
	dsn := s.Database(t)
	conn := connectPostgres(t, dsn)
	statements(t, conn, lapwingTables...)
	statements(t, conn, "ALTER TABLE lapwing_data.latest RESET (fillfactor, autovacuum_vacuum_scale_factor)",
		"CREATE INDEX ON lapwing_data.latest (received)")
	for range 3 {
		statements(t, conn, "UPDATE lapwing_data.latest SET received = clock_timestamp()")
	}
	statements(t, conn, "SELECT pg_stat_force_next_flush()", "SELECT 1")
	r := examine(t, dsn)
	if r.Severity != doctor.Critical {
		t.Errorf("severity %s", r.Severity)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Subject)
		// What it recommends is what the server takes. VACUUM FULL and others for people are tried as well.
		for _, sql := range f.SQL {
			if !strings.HasPrefix(sql, "--") {
				statements(t, conn, sql)
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"autovacuum", "autovacuum_naptime", "autovacuum_vacuum_cost_limit", "autovacuum_vacuum_insert_threshold", "checkpoint_completion_target",
		"checkpoint_timeout", "effective_io_concurrency", "fsync", "lapwing_data.latest", "lapwing_data.latest", "lapwing_data.latest", "max_wal_size",
		"random_page_cost", "shared_buffers", "synchronous_commit", "wal_buffers",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	s.Stop(t)
	s.StartAgain(t)
	for _, f := range examine(t, dsn).Findings {
		if !strings.HasPrefix(f.Subject, "lapwing_data.") { // counters remember the time before
			t.Errorf("after the advice was taken: %+v", f)
		}
	}
}

// pooler is a way to a server that tells clients numbers of its own, as PgBouncer does.
func pooler(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, ended := u.Host, make(chan error, 1)
	go func() { ended <- relay(l, host) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-ended; err != nil {
			t.Errorf("pooler: %v", err)
		}
	})
	u.Host = l.Addr().String()
	return u.String()
}

// relay serves one connection, to its end.
func relay(l net.Listener, server string) error {
	client, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	behind, err := net.Dial("tcp", server)
	if err != nil {
		return err
	}
	defer func() { _ = behind.Close() }()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(behind, client)
		copied <- err
	}()
	for { // each message is a letter, its length without the letter, and that many bytes less four
		head := make([]byte, 5)
		if _, err := io.ReadFull(behind, head); err != nil { // the server closes when the client says goodbye
			return <-copied
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(behind, body); err != nil {
			return err
		}
		if head[0] == 'K' { // the number of the server's process, and a secret
			body[0]++
		}
		if _, err := client.Write(append(head, body...)); err != nil {
			return err
		}
	}
}

func TestRealPostgresBehindPooler(t *testing.T) {
	s := testpostgres.Start(t, testpostgres.Options{Settings: wellSettings})
	statements(t, connectPostgres(t, s.DSN()), "CREATE SCHEMA lapwing_data", "CREATE TABLE lapwing_data.latest ()")
	if r := examine(t, pooler(t, s.DSN())); len(r.Unread) != 1 || !strings.Contains(r.Unread[0], "PgBouncer") {
		t.Errorf("behind a pooler: %q", r.Unread)
	}
}

// TestRealPostgresWithoutRights: an ordinary user learns what is hidden, and the rest is examined.
func TestRealPostgresWithoutRights(t *testing.T) {
	s := testpostgres.Start(t, testpostgres.Options{NoFsync: true, Settings: wellSettings})
	conn := connectPostgres(t, s.DSN())
	statements(t, conn, lapwingTables...)
	statements(t, conn, "VACUUM ANALYZE", "CREATE USER ordinary PASSWORD 'sekret'")
	u, err := url.Parse(s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("ordinary", "sekret")
	r := examine(t, u.String())
	if len(r.Unread) != 1 || !strings.Contains(r.Unread[0], "pg_monitor") {
		t.Errorf("unread: %q", r.Unread)
	}
	if len(r.Findings) != 1 || r.Findings[0].Subject != "fsync" {
		t.Errorf("findings: %+v", r.Findings)
	}
	text, err := json.Marshal(r)
	if err != nil || bytes.Contains(text, []byte("sekret")) {
		t.Errorf("report %s, %v", text, err)
	}
	statements(t, conn, "GRANT pg_monitor TO ordinary", "BEGIN", "SELECT pg_current_xact_id()", "PREPARE TRANSACTION 'left'",
		"SELECT pg_create_physical_replication_slot('unused', true)")
	facts, err := doctor.FetchPostgres(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	if len(facts.Sessions) != 1 || facts.Sessions[0].Prepared != "left" || len(facts.Slots) != 1 || facts.Slots[0].Name != "unused" ||
		!facts.Monitor || facts.Pooled || facts.Memory == 0 {
		t.Errorf("facts %+v", facts)
	}
}
