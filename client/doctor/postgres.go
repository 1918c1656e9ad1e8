package doctor

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// PostgresFacts are what ExaminePostgres looks at. Counters began at Since. Sizes are in bytes, times and ages in
// seconds. An age of +Inf means never.
type PostgresFacts struct {
	Version   int    // as server_version_num
	Name      string // of the version
	Where     string // host, port and database
	Database  string
	Uptime    float64
	Since     float64 // age of the database's counters
	Standby   bool
	Monitor   bool // the session may read all statistics
	Pooled    bool // a pooler such as PgBouncer is between
	Memory    float64
	Size      float64
	Settings  map[string]PostgresSetting
	HitShare  float64 // of blocks that were read, those found in shared_buffers
	OldestXID float64 // age in transactions of the oldest database, OldestDB
	OldestDB  string
	Tables    []PostgresTable // in lapwing_data, by name
	Sessions  []PostgresSession
	Slots     []PostgresSlot
	Replicas  []PostgresReplica
	// Checkpoints that were due in time, and that were requested: because WAL was full, or by a person, a backup or a
	// shutdown. PostgreSQL counts them together.
	Timed, Requested float64
	WAL              PostgresWAL
}

// PostgresSetting is a row of pg_settings.
type PostgresSetting struct {
	Value   string   // in Unit
	Unit    string   // such as 8kB, ms; "" if it has none
	Shown   string   // as SHOW writes it
	Restart bool     // a change needs a restart
	Choices []string // of a setting with a list of values
}

// PostgresTable has a table's statistics.
type PostgresTable struct {
	Name, Parent                               string // with the schema; Parent is "" unless it is a partition
	Live, Dead, Inserts, Updates, Hot, Deletes float64
	Vacuumed                                   float64 // age of the last vacuum
	Size                                       float64
	Options                                    map[string]string // storage parameters
}

// PostgresSession is a transaction that is open.
type PostgresSession struct {
	PID         int
	Prepared    string // the name of a prepared transaction, which has no PID
	User, State string
	Open, Idle  float64 // since when the transaction is open, and the session in its state
	Holds       float64 // age in transactions of the oldest row version that it keeps
}

// PostgresSlot is a replication slot.
type PostgresSlot struct {
	Name, Status string
	Active       bool
	Kept         float64 // WAL that it keeps
}

// PostgresReplica is a standby or another receiver of WAL.
type PostgresReplica struct {
	Name, Sync string
	Behind     float64 // bytes
}

// PostgresWAL is pg_stat_wal. Seconds is 0 if the server has none.
type PostgresWAL struct{ Bytes, FullPages, BuffersFull, Seconds float64 }

// oldestPostgres is the first version with all statistics that are read without a condition.
const oldestPostgres = 130000

// postgresTimeout bounds an examination: a locked catalogue must not hang the doctor.
const postgresTimeout = 30 * time.Second

// FetchPostgres reads a server's statistics. It changes nothing, and works through PgBouncer. No error has the
// password.
func FetchPostgres(ctx context.Context, dsn string) (*PostgresFacts, error) {
	config, err := resource.ParseDSN(dsn, pgx.ParseConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	// PgBouncer knows no prepared statements of an earlier transaction.
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "lapwing doctor"
	}
	ctx, cancel := context.WithTimeout(ctx, postgresTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	g := &PostgresFacts{Settings: map[string]PostgresSetting{}}
	g.Where = net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + "/" + config.Database
	r := postgresReader{ctx: ctx, conn: conn, into: g}
	if err := r.server(); err != nil {
		return nil, fmt.Errorf("read PostgreSQL at %s: %w", g.Where, err)
	}
	if g.Version < oldestPostgres {
		return nil, fmt.Errorf("PostgreSQL at %s is version %s: the doctor needs 13 or later", g.Where, g.Name)
	}
	for _, step := range []struct {
		name string
		read func() error
	}{
		{"pg_settings", r.settings}, {"pg_stat_database", r.database}, {"the checkpoints", r.checkpoints},
		{"pg_stat_wal", r.wal}, {"pg_stat_all_tables", r.tables}, {"pg_stat_activity", r.sessions},
		{"pg_replication_slots", r.slots}, {"pg_stat_replication", r.replicas},
	} {
		if err := step.read(); err != nil {
			return nil, fmt.Errorf("read %s of PostgreSQL at %s: %w", step.name, g.Where, err)
		}
	}
	if ip := net.ParseIP(config.Host); strings.HasPrefix(config.Host, "/") || config.Host == "localhost" || ip != nil && ip.IsLoopback() {
		if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
			g.Memory = float64(m.Total)
		}
	}
	return g, nil
}

type postgresReader struct {
	ctx  context.Context
	conn *pgx.Conn
	into *PostgresFacts
}

// one reads a single row.
func (r *postgresReader) one(sql string, to ...any) error {
	return r.conn.QueryRow(r.ctx, sql).Scan(to...)
}

// each reads rows into to, and calls f after each.
func (r *postgresReader) each(sql string, f func(), to ...any) error {
	rows, err := r.conn.Query(r.ctx, sql)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, to, func() error { f(); return nil })
	return err
}

func (r *postgresReader) server() error {
	g := r.into
	var pid int
	err := r.one(`SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_database(),
		extract(epoch FROM now() - pg_postmaster_start_time())::float8, pg_is_in_recovery(), pg_backend_pid(),
		pg_has_role('pg_read_all_stats', 'USAGE')`,
		&g.Version, &g.Name, &g.Database, &g.Uptime, &g.Standby, &pid, &g.Monitor)
	g.Name, _, _ = strings.Cut(g.Name, " ")
	g.Pooled = pid != int(r.conn.PgConn().PID()) // a pooler tells its clients numbers of its own
	return err
}

func (r *postgresReader) settings() error {
	var name string
	var s PostgresSetting
	return r.each(`SELECT name, setting, coalesce(unit, ''), current_setting(name), context = 'postmaster',
		coalesce(enumvals, '{}') FROM pg_settings`,
		func() { r.into.Settings[name] = s }, &name, &s.Value, &s.Unit, &s.Shown, &s.Restart, &s.Choices)
}

func (r *postgresReader) database() error {
	g := r.into
	err := r.one(`SELECT extract(epoch FROM now() - coalesce(stats_reset, pg_postmaster_start_time()))::float8,
		coalesce(blks_hit::float8 / nullif(blks_hit + blks_read, 0), 1)::float8,
		CASE WHEN has_database_privilege(datname, 'CONNECT') THEN pg_database_size(datid) ELSE 0 END::float8
		FROM pg_stat_database WHERE datname = current_database()`, &g.Since, &g.HitShare, &g.Size)
	if err != nil {
		return err
	}
	return r.one(`SELECT datname, age(datfrozenxid)::float8 FROM pg_database ORDER BY 2 DESC LIMIT 1`, &g.OldestDB, &g.OldestXID)
}

func (r *postgresReader) checkpoints() error {
	sql := `SELECT checkpoints_timed::float8, checkpoints_req::float8 FROM pg_stat_bgwriter`
	if r.into.Version >= 170000 {
		sql = `SELECT num_timed::float8, num_requested::float8 FROM pg_stat_checkpointer`
	}
	return r.one(sql, &r.into.Timed, &r.into.Requested)
}

func (r *postgresReader) wal() error {
	if r.into.Version < 140000 {
		return nil
	}
	w := &r.into.WAL
	return r.one(`SELECT wal_bytes::float8, wal_fpi::float8, wal_buffers_full::float8,
		extract(epoch FROM now() - coalesce(stats_reset, pg_postmaster_start_time()))::float8 FROM pg_stat_wal`,
		&w.Bytes, &w.FullPages, &w.BuffersFull, &w.Seconds)
}

func (r *postgresReader) tables() error {
	var t PostgresTable
	var options []string
	return r.each(`SELECT n.nspname || '.' || c.relname, coalesce(pn.nspname || '.' || p.relname, ''),
		coalesce(s.n_live_tup, 0)::float8, coalesce(s.n_dead_tup, 0)::float8, coalesce(s.n_tup_ins, 0)::float8,
		coalesce(s.n_tup_upd, 0)::float8, coalesce(s.n_tup_hot_upd, 0)::float8, coalesce(s.n_tup_del, 0)::float8,
		coalesce(extract(epoch FROM now() - greatest(s.last_vacuum, s.last_autovacuum))::float8, 'Infinity'),
		coalesce(pg_total_relation_size(c.oid), 0)::float8, coalesce(c.reloptions, '{}')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
		LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
		LEFT JOIN pg_namespace pn ON pn.oid = p.relnamespace
		WHERE n.nspname = 'lapwing_data' AND c.relkind = 'r' ORDER BY c.relname`,
		func() {
			t.Options = map[string]string{}
			for _, o := range options {
				name, value, _ := strings.Cut(o, "=")
				t.Options[name] = value
			}
			r.into.Tables = append(r.into.Tables, t)
		},
		&t.Name, &t.Parent, &t.Live, &t.Dead, &t.Inserts, &t.Updates, &t.Hot, &t.Deletes, &t.Vacuumed, &t.Size, &options)
}

func (r *postgresReader) sessions() error {
	var s PostgresSession
	return r.each(`SELECT pid, '', coalesce(usename, ''), coalesce(state, ''), extract(epoch FROM now() - xact_start)::float8,
		coalesce(extract(epoch FROM now() - state_change), 0)::float8, coalesce(greatest(age(backend_xid), age(backend_xmin)), 0)::float8
		FROM pg_stat_activity WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
		UNION ALL SELECT 0, gid, owner, 'prepared', extract(epoch FROM now() - prepared)::float8, 0, age(transaction)::float8
		FROM pg_prepared_xacts ORDER BY 5 DESC`,
		func() { r.into.Sessions = append(r.into.Sessions, s) },
		&s.PID, &s.Prepared, &s.User, &s.State, &s.Open, &s.Idle, &s.Holds)
}

// walPosition is where the server writes WAL, or as a standby has received it.
const walPosition = `CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END`

func (r *postgresReader) slots() error {
	var s PostgresSlot
	return r.each(`SELECT slot_name, coalesce(wal_status, ''), active,
		coalesce(pg_wal_lsn_diff(`+walPosition+`, restart_lsn), 0)::float8 FROM pg_replication_slots ORDER BY 1`,
		func() { r.into.Slots = append(r.into.Slots, s) }, &s.Name, &s.Status, &s.Active, &s.Kept)
}

func (r *postgresReader) replicas() error {
	var s PostgresReplica
	return r.each(`SELECT coalesce(application_name, ''), coalesce(sync_state, ''),
		coalesce(pg_wal_lsn_diff(`+walPosition+`, replay_lsn), 0)::float8 FROM pg_stat_replication ORDER BY 1`,
		func() { r.into.Replicas = append(r.into.Replicas, s) }, &s.Name, &s.Sync, &s.Behind)
}

// is reports whether a setting has the value.
func (g *PostgresFacts) is(name, value string) bool { return g.Settings[name].Value == value }

// number is a setting in bytes or seconds if it has a unit, and whether it is known.
func (g *PostgresFacts) number(name string) (float64, bool) {
	s, ok := g.Settings[name]
	n, err := strconv.ParseFloat(s.Value, 64)
	return n * postgresUnit(s.Unit), ok && err == nil
}

func postgresUnit(unit string) float64 {
	digits := strings.TrimRight(unit, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	scale := map[string]float64{"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}[unit[len(digits):]]
	if scale == 0 {
		return 1
	}
	if n, err := strconv.ParseFloat(digits, 64); err == nil {
		scale *= n
	}
	return scale
}

// option is a table's storage parameter, or else the setting of that name.
func (g *PostgresFacts) option(t *PostgresTable, name string) (float64, bool) {
	if n, err := strconv.ParseFloat(t.Options[name], 64); err == nil {
		return n, true
	}
	return g.number(name)
}

// changed is how many rows of lapwing's tables are inserted, updated or deleted a second.
func (g *PostgresFacts) changed() (n float64) {
	for i := range g.Tables {
		n += g.Tables[i].Inserts + g.Tables[i].Updates + g.Tables[i].Deletes
	}
	return n / max(1, g.Since)
}

// busyPostgres is the number of rows a second from which PostgreSQL's defaults, which are for small machines, are too low.
const busyPostgres = 200

func (g *PostgresFacts) busy() bool { return g.changed() >= busyPostgres }

// tablesSize is what lapwing's tables take, with their indexes.
func (g *PostgresFacts) tablesSize() (n float64) {
	for i := range g.Tables {
		n += g.Tables[i].Size
	}
	return n
}

// PostgresReport is the result of an examination of a PostgreSQL server.
type PostgresReport struct {
	Severity Severity  `json:"severity"`
	Server   string    `json:"server"`
	Summary  []string  `json:"summary"`
	Findings []Finding `json:"findings"` // the worst first; those that are fine are notes
	// Unread says what could not be looked at, and what it needs.
	Unread []string `json:"unread"`
}

// ExaminePostgres compares the facts with a list of rules.
func ExaminePostgres(g *PostgresFacts) *PostgresReport {
	r := &PostgresReport{
		Server: fmt.Sprintf("PostgreSQL %s at %s, up %s", g.Name, g.Where, duration(g.Uptime)), Findings: []Finding{}, Unread: g.unread(),
	}
	if len(g.Tables) == 0 {
		r.Summary = append(r.Summary,
			fmt.Sprintf("The database %s has no tables of lapwing. lapwing makes them when it first connects: is the DSN the one that it has?",
				g.Database),
			"What follows is about the server alone.", fmt.Sprintf("database %s", bytes(g.Size)))
	} else {
		r.Summary = append(r.Summary, fmt.Sprintf("database %s, lapwing's tables %s; %s rows/s changed in the %s that statistics cover",
			bytes(g.Size), bytes(g.tablesSize()), number(g.changed()), duration(g.Since)))
	}
	if w := g.WAL; w.Seconds > 0 {
		r.Summary = append(r.Summary,
			fmt.Sprintf("WAL: %s/s; checkpoints: %s in time, %s on request (WAL was full, or a CHECKPOINT, backup or shutdown)",
				bytes(w.Bytes/w.Seconds), number(g.Timed), number(g.Requested)))
	}
	for _, rule := range postgresRules {
		r.Findings = append(r.Findings, rule(g)...)
	}
	for i := range r.Findings {
		r.Findings[i].Part = Postgres
		r.Severity = max(r.Severity, r.Findings[i].Severity)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) })
	return r
}

// unread says what the facts lack.
func (g *PostgresFacts) unread() []string {
	unread := []string{}
	if len(g.Tables) == 0 {
		unread = append(unread,
			fmt.Sprintf("The database %s has no tables in a schema lapwing_data: rules about them had nothing to look at.", g.Database))
	}
	if !g.Monitor {
		unread = append(unread, "Without the role pg_monitor, sessions of other users (long or idle transactions) and the lag of replicas "+
			"are hidden. GRANT pg_monitor TO the user of the DSN.")
	}
	if g.Pooled {
		unread = append(unread, "A pooler such as PgBouncer is in between: its own queues and limits (SHOW POOLS in its database "+
			"pgbouncer) and the clients behind its connections are not visible here, and settings may be those of another session's user.")
	}
	if g.Memory == 0 {
		unread = append(unread, "The memory of the server's machine is not known from here: compare shared_buffers with a quarter of it.")
	}
	if g.WAL.Seconds == 0 {
		unread = append(unread, "There is no pg_stat_wal before PostgreSQL 14: nothing is said about full pages and WAL buffers.")
	}
	return unread
}

// Infinite ages are for tables that were never vacuumed.
func age(seconds float64) string {
	if math.IsInf(seconds, 1) {
		return "never"
	}
	return duration(seconds) + " ago"
}
