package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// definer is a session that only writes definitions.
type definer struct {
	*session
	t    *testing.T
	now  *config.Snapshot
	acts bool
}

func newDefiner(t *testing.T, dsn string) *definer {
	t.Helper()
	w := &definer{t: t, now: config.Empty(), acts: true}
	p := &Projection{opts: DefaultOptions()}
	p.opts.Definitions = func() *config.Snapshot { return w.now }
	p.opts.ActsDefinitions = func() bool { return w.acts }
	p.metrics = newMetrics(nil, p)
	conn, err := connect(t.Context(), dsn, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if err := migrate(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	w.session = &session{p: p, conn: conn}
	return w
}

// look has the session look for changes now, and write them all. It returns how many turns it took.
func (w *definer) look() (turns int) {
	w.t.Helper()
	w.definitions.looked = time.Time{}
	for more := true; more; turns++ {
		var err error
		if more, err = w.define(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	return turns
}

// rows returns the rows of a query, one a line.
func (w *definer) rows(sql string) string {
	w.t.Helper()
	found, err := w.conn.Query(w.t.Context(), sql)
	if err != nil {
		w.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		return strings.TrimSuffix(fmt.Sprintln(values...), "\n"), err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func (w *definer) want(sql, want string) {
	w.t.Helper()
	if got := w.rows(sql); got != want {
		w.t.Errorf("%s:\n%s\nwant:\n%s", sql, got, want)
	}
}

func entity(name string, labels ...string) *resource.EntityConfig {
	e := &resource.EntityConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, EntityClass: "proxy"}
	for i := 0; i < len(labels); i += 2 {
		if e.Metadata.Labels == nil {
			e.Metadata.Labels = map[string]string{}
		}
		e.Metadata.Labels[labels[i]] = labels[i+1]
	}
	return e
}

func snapshot(entities ...*resource.EntityConfig) *config.Snapshot {
	sn := config.Empty()
	for _, e := range entities {
		sn = config.With(sn, config.Entities, e)
	}
	return sn
}

const (
	showVersions = `SELECT kind, name, object #>> '{metadata,labels,v}', until IS NOT NULL, since <= until
		FROM lapwing_data.definition ORDER BY kind, name, since`
	countVersions = `SELECT count(*), count(*) FILTER (WHERE until IS NULL) FROM lapwing_data.definition`
)

func TestDefinitionChanges(t *testing.T) {
	a, b, c := entity("a"), entity("b"), entity("c")
	check := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "a"}}
	silence := &resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "default", Name: "a:*"}}
	ab := snapshot(a, b)
	tests := []struct {
		name     string
		from, to *config.Snapshot
		want     string
	}{
		{"nothing", ab, ab, ""},
		{"another kind", ab, config.With(ab, config.Handlers, &resource.Handler{Metadata: check.Metadata}), ""},
		{"equal trees", ab, snapshot(a, b), ""},
		{"all", config.Empty(), ab, "+Entity/a +Entity/b"},
		{"none left", ab, config.Empty(), "-Entity/a -Entity/b"},
		{"new", snapshot(a), ab, "+Entity/b"},
		{"written anew", ab, config.With(ab, config.Entities, entity("b")), "+Entity/b"},
		{"replaced by another", ab, snapshot(a, c), "+Entity/c -Entity/b"},
		{"kinds with equal names", ab, config.With(config.With(ab, config.Checks, check), config.Silences, silence),
			"+CheckConfig/a +Silenced/a:*"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, d := range definitionChanges(tt.from, tt.to) {
				sign := "+"
				if d.object == nil {
					sign = "-"
				}
				got = append(got, sign+d.kind+"/"+d.name)
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("%s, want %s", s, tt.want)
			}
		})
	}
	if n := testing.AllocsPerRun(10, func() { definitionChanges(ab, ab) }); n != 0 {
		t.Errorf("%v allocations while nothing changes", n)
	}
}

func TestDefinitionJSONHasNoSecrets(t *testing.T) {
	e := entity("web1", "password", "hunter2", "region", "eu")
	e.Metadata.Annotations = map[string]string{"API-Key": "hunter2"}
	own := entity("web2", "region", "hunter2", "password", "shown")
	own.Redact = []string{"region"}
	check := &resource.CheckConfig{EnvVars: []string{"DB_PASSWORD=hunter2", "URL=https://me:hunter2@db/", "MODE=fast"}}
	for _, tt := range []struct {
		object any
		shows  []string
	}{
		{e, []string{"eu"}}, {own, []string{"shown"}}, {check, []string{"MODE=fast", "@db/"}},
	} {
		b, err := definitionJSON(tt.object)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(tt.shows, resource.Redacted) {
			if !strings.Contains(string(b), text) {
				t.Errorf("%s lacks %s", b, text)
			}
		}
		if strings.Contains(string(b), "hunter2") {
			t.Errorf("%s has a secret", b)
		}
	}
	if e.Metadata.Labels["password"] != "hunter2" || check.EnvVars[0] != "DB_PASSWORD=hunter2" {
		t.Error("the definition was changed")
	}
}

// oddTexts are texts that jsonb takes only with changes, or that look like such.
var oddTexts = []string{
	"\x00", "a\x00b\x00", `\u0000`, `\\u0000`, "\\\x00", "\\\\\x00", `\` + "\x00" + `\u0000`, "\xff\xfe", "\xed\xa0\x80", `\ud800`,
	"é\u2028<&>\x01\x7f", "\ufffd", `ends with \`, "u0000", "",
}

// stored is a text as PostgreSQL has it.
func stored(s string) string { return strings.ReplaceAll(string([]rune(s)), "\x00", "\ufffd") }

func FuzzWithoutNUL(f *testing.F) {
	for _, s := range oddTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(map[string]string{s: s})
		if err != nil {
			t.Fatal(err)
		}
		withoutNUL(b)
		var got map[string]string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if value, ok := got[stored(s)]; !ok || value != stored(s) || len(got) != 1 {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func TestRealOddDefinitions(t *testing.T) {
	w := newDefiner(t, testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN())
	for i, text := range oddTexts {
		w.now = config.With(w.now, config.Entities, entity(fmt.Sprint(i), "v", text, text, "key"))
	}
	w.look()
	for i, text := range oddTexts {
		var v string
		var hasKey bool
		err := w.conn.QueryRow(t.Context(), "SELECT labels ->> 'v', labels ? $2 FROM lapwing.entities WHERE name = $1",
			fmt.Sprint(i), stored(text)).Scan(&v, &hasKey)
		if err != nil || v != stored(text) || !hasKey {
			t.Errorf("%q became %q, and the label is there: %v (%v)", text, v, hasKey, err)
		}
	}
}

func TestRealDefinitionsAsTheyChange(t *testing.T) {
	w := newDefiner(t, testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN())
	meta := func(name, v string) resource.ObjectMeta {
		return resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"v": v}}
	}
	w.now = snapshot(entity("web1", "v", "1"), entity("web2", "v", "1"))
	w.now = config.With(w.now, config.Checks, &resource.CheckConfig{
		Metadata: meta("disk", "1"), Interval: 60, Subscriptions: []string{"linux"}})
	w.now = config.With(w.now, config.Silences, &resource.Silenced{Metadata: meta("linux:disk", "1"), Creator: "ann", Check: "disk"})
	w.look()
	w.want(showVersions, `CheckConfig disk 1 false <nil>
Entity web1 1 false <nil>
Entity web2 1 false <nil>
Silenced linux:disk 1 false <nil>`)
	w.want(`SELECT name, interval, subscriptions FROM lapwing.checks`, "disk 60 [linux]")
	w.want(`SELECT name, creator, "check" FROM lapwing.silences`, "linux:disk ann disk")

	w.now = config.With(w.now, config.Entities, entity("web1", "v", "1")) // as a session's first keepalive does
	w.look()
	w.want(countVersions, "4 4")

	all := w.now
	w.now = config.With(config.With(snapshot(entity("web1", "v", "2")), config.Checks, &resource.CheckConfig{Metadata: meta("disk", "2")}),
		config.Entities, entity("web3", "v", "2"))
	w.look()
	w.want(showVersions, `CheckConfig disk 1 true true
CheckConfig disk 2 false <nil>
Entity web1 1 true true
Entity web1 2 false <nil>
Entity web2 1 true true
Entity web3 2 false <nil>
Silenced linux:disk 1 true true`)
	w.want(`SELECT count(*) FROM lapwing_data.definition a JOIN lapwing_data.definition b
		ON a.kind = b.kind AND a.name = b.name AND a.until = b.since`, "2")

	// Another backend goes on with what is different.
	next := newDefiner(t, w.conn.Config().ConnString())
	next.now = all
	next.look()
	w.want(showVersions, `CheckConfig disk 1 true true
CheckConfig disk 2 true true
CheckConfig disk 1 false <nil>
Entity web1 1 true true
Entity web1 2 true true
Entity web1 1 false <nil>
Entity web2 1 true true
Entity web2 1 false <nil>
Entity web3 2 true true
Silenced linux:disk 1 true true
Silenced linux:disk 1 false <nil>`)
	if n := testutil.ToFloat64(next.p.metrics.rows.WithLabelValues(tableDefinition)); n != 4 {
		t.Errorf("%v rows were counted, want 4", n)
	}
}

func TestRealDefinitionsOfAFleet(t *testing.T) {
	const fleet = 10*maxDefinitions + 1
	w := newDefiner(t, testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN())
	for i := range fleet {
		w.now = config.With(w.now, config.Entities, entity(fmt.Sprintf("web%05d", i), "v", "1"))
	}
	if turns := w.look(); turns != 11 {
		t.Errorf("the first start took %d turns, want 11", turns)
	}
	w.want(countVersions, fmt.Sprint(fleet, fleet))
	w.want("SELECT max(n) FROM (SELECT count(*) AS n FROM lapwing_data.definition GROUP BY xmin) AS transactions", "1000")
	w.now = config.With(w.now, config.Entities, entity("web00007", "v", "2"))
	if turns := w.look(); turns != 1 {
		t.Errorf("one change took %d turns", turns)
	}
	again := newDefiner(t, w.conn.Config().ConnString())
	again.now = w.now
	again.look()
	w.want(countVersions, fmt.Sprint(fleet+1, fleet))

	// Definitions are not only counted: large ones need more transactions.
	again.p.opts.BatchBytes = 1
	again.now = config.With(config.With(w.now, config.Entities, entity("x")), config.Entities, entity("y"))
	if turns := again.look(); turns != 2 {
		t.Errorf("two changes took %d turns, want 2", turns)
	}
}

func TestRealDefinitionsOfTwoBackends(t *testing.T) {
	dsn := testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN()
	a, b := newDefiner(t, dsn), newDefiner(t, dsn)
	both := func(sn *config.Snapshot) {
		a.now, b.now = sn, sn
		a.look()
		b.look() // finds that its rows are not the table's
		if b.definitions.rows != nil {
			t.Error("the second backend wrote as if it were alone")
		}
		b.look()
	}
	a.look()
	b.look()
	both(snapshot(entity("web1", "v", "1"), entity("web2", "v", "1")))
	both(snapshot(entity("web1", "v", "2"), entity("web2", "v", "1")))
	both(snapshot(entity("web1", "v", "2")))
	a.want(showVersions, `Entity web1 1 true true
Entity web1 2 false <nil>
Entity web2 1 true true`)

	t.Run("while one writes", func(t *testing.T) {
		a.now = snapshot(entity("web1", "v", "3"))
		b.now = a.now
		b.definitions.pending = definitionChanges(config.Empty(), b.now)
		err := inTransaction(t.Context(), a.conn, func(tx pgx.Tx) error {
			var free bool
			if err := tx.QueryRow(t.Context(), "SELECT pg_try_advisory_xact_lock($1)", int64(definitionLock)).Scan(&free); err != nil || !free {
				return fmt.Errorf("the lock is free: %v: %w", free, err)
			}
			if err := b.writeDefinitions(t.Context()); !errors.Is(err, errMoved) {
				t.Errorf("the second backend got %v, want %v", err, errMoved)
			}
			b.definitions = definitions{}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})

	t.Run("at once", func(t *testing.T) {
		for round := range 5 {
			sn := config.Empty()
			for i := range 50 {
				sn = config.With(sn, config.Entities, entity(fmt.Sprint("new", round*25+i), "v", fmt.Sprint(round)))
			}
			var wait sync.WaitGroup
			for _, w := range []*definer{a, b} {
				w.now = sn
				wait.Go(func() {
					for range 3 {
						w.definitions.looked = time.Time{}
						if _, err := w.define(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			a.want("SELECT count(*), min(object #>> '{metadata,labels,v}') FROM lapwing_data.definition WHERE until IS NULL",
				fmt.Sprint(50, " ", round))
		}
		// Each of the 150 is one version in each round that has it.
		a.want("SELECT count(*) FROM lapwing_data.definition WHERE name LIKE 'new%'", "250")
	})
}

func TestRealDefinitionsOfTheOneThatActs(t *testing.T) {
	w := newDefiner(t, testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN())
	w.now, w.acts = snapshot(entity("web1", "v", "1")), false
	w.look()
	w.want(countVersions, "0 0")
	w.acts = true
	w.look()
	w.want(countVersions, "1 1")
	// Another one acts for a while. What this one knows is then old.
	w.acts = false
	w.look()
	if _, err := w.conn.Exec(t.Context(), "UPDATE lapwing_data.definition SET until = now()"); err != nil {
		t.Fatal(err)
	}
	w.acts = true
	w.look()
	w.want(countVersions, "2 1")
	w.p.opts.Definitions = nil
	w.look()
	w.want(countVersions, "2 1")
}

func TestRealOldDefinitionsAreRemoved(t *testing.T) {
	w := newDefiner(t, testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN())
	insert := fmt.Sprintf(`INSERT INTO lapwing_data.definition (since, until, hash, kind, namespace, name, object)
		SELECT now() - interval '9 days', now() - age, 1, 'Entity', 'default', 'old', '{}'
		FROM unnest(array['8 days', '6 days']::interval[]) AS age, generate_series(1, %d)`, 2*maxDefinitions)
	if _, err := w.conn.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	w.now = snapshot(entity("web1"))
	w.look()
	w.want(countVersions, "4001 1") // for ever
	w.settings.Changes = 7 * 24 * time.Hour
	for _, want := range []string{"3001 1", "2001 1", "2001 1"} {
		w.look()
		w.want(countVersions, want)
	}
	w.settings.Changes = time.Hour
	w.look()
	w.want(countVersions, "2001 1") // an hour later
	w.definitions.expired = time.Time{}
	w.look()
	w.want(countVersions, "1001 1")
}
