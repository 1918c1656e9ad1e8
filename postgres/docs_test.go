package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/report"
)

// documented are the blocks of SQL in docs/postgres.md, by what follows "sql" in their first line.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/postgres.md")
	check(t, err)
	blocks := map[string][]string{}
	for _, m := range regexp.MustCompile("(?ms)^```sql ?(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = append(blocks[m[1]], m[2])
	}
	for name, count := range map[string]int{"admin": 1, "schemas": 1, "reports": 1, "owner": 1, "": 12} {
		if len(blocks[name]) != count {
			t.Fatalf("blocks of SQL: %v", blocks)
		}
	}
	return blocks
}

// as returns the DSN for another role and database of the same server.
func as(dsn, role, database string) string {
	return strings.Replace(strings.Replace(dsn, "//postgres@", "//"+role+"@", 1), "/postgres?", "/"+database+"?", 1)
}

func migrateAs(t *testing.T, dsn string) error {
	t.Helper()
	conn, err := connect(t.Context(), dsn, time.Minute)
	check(t, err)
	return errors.Join(migrate(t.Context(), conn), conn.Close(context.Background()))
}

// asDocumented sets up a database as docs/postgres.md says, with rows, and returns its DSN for the role lapwing_reports.
func asDocumented(t *testing.T, blocks map[string][]string) (admin, owner, reports string) {
	t.Helper()
	dsn := server(t).DSN()
	for _, statement := range strings.SplitAfter(strings.TrimSpace(blocks["admin"][0]), ";") {
		execute(t, dsn, statement) // CREATE DATABASE is not for a transaction
	}
	admin, owner = as(dsn, "postgres", "lapwing"), as(dsn, "lapwing", "lapwing")
	execute(t, admin, "REVOKE ALL ON DATABASE lapwing FROM PUBLIC") // as careful administrators do: what is documented is enough
	check(t, migrateAs(t, owner))
	execute(t, admin, blocks["reports"][0])
	execute(t, owner, blocks["owner"][0])
	execute(t, admin, "ALTER ROLE lapwing_reports LOGIN")
	conn, err := connect(t.Context(), owner, time.Minute)
	check(t, err)
	now := time.Now()
	for _, s := range []spans{
		{table: tableEvent, exist: map[int64]struct{}{}}, {table: tableChange, monthly: true, exist: map[int64]struct{}{}},
		{table: tableNotification, monthly: true, exist: map[int64]struct{}{}},
	} {
		for at := now.AddDate(0, -3, 0); !at.After(now); at = at.AddDate(0, 0, 1) {
			check(t, s.ensure(t.Context(), conn, at))
		}
	}
	check(t, conn.Close(context.Background()))
	rows, err := os.ReadFile("testdata/rows.sql")
	check(t, err)
	execute(t, owner, string(rows))
	return admin, owner, as(dsn, "lapwing_reports", "lapwing")
}

// TestRealDocumentedQueries sets up a database as docs/postgres.md says, and runs its queries, and those of the dashboard,
// with the role for reports. Each finds something.
func TestRealDocumentedQueries(t *testing.T) {
	blocks := documented(t)
	admin, owner, reports := asDocumented(t, blocks)
	results := map[string]string{}
	for _, sql := range blocks[""] {
		got := query(t, reports, sql)
		if got == "" {
			t.Errorf("no rows: %s", sql)
		}
		results[sql] = got
	}
	result := func(part string) string {
		for sql, got := range results {
			if strings.Contains(sql, part) {
				return got
			}
		}
		t.Fatalf("no query has %s", part)
		return ""
	}
	// web1 failed for two days of last month, with two checks; web2 since before it; db1 never.
	const days = `SELECT extract(epoch FROM date_trunc('month', now()) - (date_trunc('month', now()) - interval '1 month')) / 86400`
	uptime := query(t, admin, `SELECT round(100 - 100 * 2 / (`+days+`), 3)::text`)
	month := query(t, admin, `SELECT (date_trunc('month', now()) - (date_trunc('month', now()) - interval '1 month'))::text`)
	want(t, "uptime", uptimes(t, reports, blocks[""]),
		"default|web2|"+month+"|0.000\ndefault|web1|2 days|"+uptime+"\ndefault|db1|00:00:00|100.000")
	if got := result("mean_time_to_repair"); !strings.Contains(got, "default|disk|") {
		t.Errorf("mean time to repair: %q", got)
	}
	if got := result("unnest(recipients)"); !strings.Contains(got, "alice@example.org|ok") || !strings.Contains(got, "bob@example.org|ok") {
		t.Errorf("who was notified: %q", got)
	}
	in := report.Range{Namespace: "default", Since: time.Now().AddDate(0, 0, -7), Until: time.Now()}
	rep, err := report.Run(t.Context(), newReader(t, Settings{DSN: owner}), report.Query{Kind: report.Noisiest, By: report.ByCheck, Range: in})
	check(t, err)
	var noisiest []string
	for _, row := range rep.Rows {
		noisiest = append(noisiest, fmt.Sprintf("default|%s|%d|1", row.Check, row.Changes))
	}
	want(t, "noisiest checks", result("FROM changes WHERE changed"), strings.Join(noisiest, "\n"))
	if got := result("disappeared"); !strings.Contains(got, "old1") || !strings.Contains(got, "new1") || strings.Contains(got, "web1") {
		t.Errorf("entities of the week: %q", got)
	}
	// The role for reports has no rights on the tables.
	conn, err := pgx.Connect(t.Context(), reports)
	check(t, err)
	defer func() { check(t, conn.Close(context.Background())) }()
	for _, sql := range []string{"SELECT 1 FROM lapwing_data.latest", "DELETE FROM lapwing.gaps", "CREATE TABLE lapwing.x ()"} {
		if _, err := conn.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for title, sql := range dashboardQueries(t) {
		if query(t, reports, sql) == "" {
			t.Errorf("dashboard, %s: no rows: %s", title, sql)
		}
	}
}

// uptimes runs the query for the uptime, with plain text as its columns.
func uptimes(t *testing.T, dsn string, blocks []string) string {
	t.Helper()
	for _, sql := range blocks {
		if strings.Contains(sql, "AS uptime") {
			return query(t, dsn, `SELECT namespace, entity, down::text, uptime::text FROM (`+strings.TrimSuffix(strings.TrimSpace(sql), ";")+`) AS all_of_them`)
		}
	}
	t.Fatal("no query has the uptime")
	return ""
}

// dashboardQueries returns the queries of the dashboard, with Grafana's macros replaced as Grafana does.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/grafana/lapwing-postgres.json")
	check(t, err)
	var d struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ RawSQL string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	check(t, json.Unmarshal(text, &d))
	all := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Name == "namespace" {
			all["variable "+v.Name] = v.Definition
		}
	}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s has no query", p.Title)
		}
		for _, target := range p.Targets {
			all[p.Title] = target.RawSQL
		}
	}
	if len(all) < 8 {
		t.Fatalf("queries of the dashboard: %v", all)
	}
	from, to := time.Now().AddDate(0, -2, 0).UTC().Format(time.RFC3339), time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
	for title, sql := range all {
		for _, macro := range []struct{ pattern, with string }{
			{`\$__timeFilter\(([^)]*)\)`, `$1 BETWEEN '` + from + `' AND '` + to + `'`},
			{`\$__timeFrom\(\)`, `'` + from + `'`}, {`\$__timeTo\(\)`, `'` + to + `'`},
			{`\$__timeGroup\(([^,)]*),\s*'1h'\)`, `floor(extract(epoch from $1)/3600)*3600`},
			{`\$namespace\b`, `'default'`},
		} {
			sql = regexp.MustCompile(macro.pattern).ReplaceAllString(sql, macro.with)
		}
		if strings.Contains(sql, "$") {
			t.Errorf("dashboard, %s: a macro or variable is left: %s", title, sql)
		}
		all[title] = sql
	}
	return all
}

// TestRealDocumentedColumns compares the views of docs/postgres.md with the database.
func TestRealDocumentedColumns(t *testing.T) {
	text, err := os.ReadFile("../docs/postgres.md")
	check(t, err)
	var list []string
	for _, m := range regexp.MustCompile("(?m)^\\| `lapwing\\.(\\w+)`[^|]*\\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		list = append(list, m[1]+": "+strings.ReplaceAll(m[2], "`", ""))
	}
	dsn := server(t).DSN()
	check(t, migrateAs(t, dsn))
	got := query(t, dsn, `SELECT table_name || ': ' || string_agg(column_name, ', ' ORDER BY ordinal_position)
		FROM information_schema.columns WHERE table_schema = 'lapwing' GROUP BY table_name ORDER BY array_position($1, table_name::text)`,
		views(list))
	want(t, "views in docs/postgres.md", strings.Join(list, "\n"), got)
}

func views(list []string) (names []string) {
	for _, one := range list {
		name, _, _ := strings.Cut(one, ":")
		names = append(names, name)
	}
	return names
}

// TestRealSchemasOfAnAdministrator: a role that may not make schemas uses those that were made for it, and says what it
// lacks without them. The role for reports may get its rights before the first connection, too.
func TestRealSchemasOfAnAdministrator(t *testing.T) {
	blocks := documented(t)
	pg := server(t)
	dsn := pg.DSN()
	execute(t, dsn, "CREATE ROLE lapwing LOGIN")
	execute(t, dsn, "CREATE DATABASE lapwing")
	admin, owner := as(dsn, "postgres", "lapwing"), as(dsn, "lapwing", "lapwing")
	execute(t, admin, "REVOKE ALL ON DATABASE lapwing FROM PUBLIC; GRANT CONNECT ON DATABASE lapwing TO lapwing")
	if err := migrateAs(t, owner); err == nil || !strings.Contains(err.Error(), "create the schemas lapwing and lapwing_data") {
		t.Errorf("without schemas: %v", err)
	}
	execute(t, admin, blocks["schemas"][0])
	execute(t, admin, blocks["reports"][0])
	execute(t, owner, blocks["owner"][0])
	check(t, migrateAs(t, owner))
	execute(t, admin, "ALTER ROLE lapwing_reports LOGIN")
	for _, role := range []string{"lapwing", "lapwing_reports"} {
		want(t, "events for "+role, query(t, as(dsn, role, "lapwing"), "SELECT count(*) FROM lapwing.current_events"), "0")
	}
}
