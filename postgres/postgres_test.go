package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func server(t *testing.T) *testpostgres.Server { return testpostgres.Start(t, testpostgres.Options{}) }

const (
	showEvents = `SELECT entity, "check", status, state, occurrences, output FROM lapwing.events ORDER BY entity, "check", received, event`
	showLatest = `SELECT entity, "check", status, state, occurrences, occurrences_watermark, output FROM lapwing.current_events ORDER BY 1, 2`
	showTurns  = `SELECT entity, "check", status, state FROM lapwing.state_changes ORDER BY entity, "check", received, event`
)

func TestRealEventsBecomeRows(t *testing.T) {
	b := newBed(t)
	b.start(server(t).DSN(), nil)
	for i, status := range []uint32{0, 0, 2, 2, 1, 0} {
		b.put(event("web1", "disk", status, int64(1000+i), fmt.Sprint("result ", i)))
	}
	b.put(event("web2", "disk", 1, 1000, "a"), event("web2", "load", 0, 1000, "b"))
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Namespace: "default", Entity: "web2", Check: "load", Received: time.Now().UnixMilli()})
	b.settled()
	want(t, "events", query(t, b.dsn, showEvents), `web1|disk|0|passing|1|result 0
web1|disk|0|passing|2|result 1
web1|disk|2|failing|1|result 2
web1|disk|2|failing|2|result 3
web1|disk|1|failing|1|result 4
web1|disk|0|passing|1|result 5
web2|disk|1|failing|1|a
web2|load|0|passing|1|b`)
	want(t, "latest events", query(t, b.dsn, showLatest), `web1|disk|0|passing|1|2|result 5
web2|disk|1|failing|1|1|a`)
	want(t, "changes", query(t, b.dsn, showTurns), `web1|disk|0|passing
web1|disk|2|failing
web1|disk|1|failing
web1|disk|0|passing
web2|disk|1|failing
web2|load|0|passing
web2|load|0|deleted`)
	want(t, "times", query(t, b.dsn, `SELECT extract(epoch FROM executed)::int, duration FROM lapwing.events WHERE output = 'result 5'`), "1005|0.25")
}

// TestRealOddEvents sends what PostgreSQL does not take as it is.
func TestRealOddEvents(t *testing.T) {
	b := newBed(t)
	b.start(server(t).DSN(), nil)
	metrics := resource.Event{Metrics: &resource.Metrics{Points: []resource.MetricPoint{{Name: "load", Value: 1}}}}
	b.put(
		event("web1", "nul", 0, 1000, "a\x00b"),
		event("web1", "bytes", 0, 1000, "\xff\xfe and then"),
		event("web1", "late", math.MaxUint32, math.MaxInt64, "x"),
		event("web1", "early", 1, math.MinInt64, "x"),
		event("web1", "long", 1, 1, strings.Repeat("é", 1<<16)),
		eventlog.Record{Kind: eventlog.KindEvent, Namespace: "default", Entity: "web1", Received: time.Now().UnixMilli(),
			Flags: eventlog.FlagMetrics | eventlog.FlagStateless, Body: metrics.AppendProto(nil)},
		eventlog.Record{Kind: eventlog.KindEvent, Namespace: "default", Entity: "web1", Check: "no body", Received: 1, Body: []byte("\xff\xff")},
	)
	b.settled()
	want(t, "events", query(t, b.dsn, `SELECT "check", status, length(output), left(output, 12) FROM lapwing.events ORDER BY 1`), strings.Join([]string{
		"|0|0|", "bytes|0|10|\ufffd and then", "early|1|1|x", "late|4294967295|1|x", "long|1|65536|éééééééééééé", "no body|0|0|", "nul|0|3|a\ufffdb",
	}, "\n"))
	want(t, "latest events", query(t, b.dsn, `SELECT "check", length(output) FROM lapwing.current_events ORDER BY 1`),
		"bytes|10\nearly|1\nlate|1\nlong|512\nno body|0\nnul|3")
}

// sender puts events of some checks, each numbered in its output, until it is stopped.
type sender struct {
	bed   *bed
	stop  chan struct{}
	ended sync.WaitGroup
	sent  int // events of each check
}

const checks = 7

func (b *bed) send() *sender {
	s := &sender{bed: b, stop: make(chan struct{})}
	s.ended.Go(func() {
		for ; ; s.sent++ {
			select {
			case <-s.stop:
				return
			default:
			}
			var all []eventlog.Record
			for c := range checks {
				all = append(all, event(fmt.Sprint("web", c), "c", uint32(s.sent/3%2), int64(s.sent+1), fmt.Sprint(s.sent)))
			}
			b.put(all...)
		}
	})
	return s
}

// atLeast waits until so many events of each check were sent, and stops.
func (s *sender) end() {
	close(s.stop)
	s.ended.Wait()
}

// wantAll checks that each event is there once and in its order, and that the latest rows have the last ones.
func (s *sender) wantAll(t testing.TB, dsn string) {
	t.Helper()
	want(t, "checks with all of their events", query(t, dsn, `SELECT count(*) FROM (
		SELECT pair_id FROM lapwing_data.event GROUP BY pair_id
		HAVING count(*) = $1 AND array_agg(output::int ORDER BY seq, sub) = (SELECT array_agg(i) FROM generate_series(0, $1::int - 1) i)) x`, s.sent),
		fmt.Sprint(checks))
	want(t, "latest events", query(t, dsn, `SELECT count(*) FROM lapwing_data.latest WHERE output::int = $1 - 1`, s.sent), fmt.Sprint(checks))
	want(t, "changes", query(t, dsn, `SELECT count(*) FROM lapwing_data.state_change WHERE flags & 4 <> 0`), fmt.Sprint(checks*((s.sent+2)/3)))
	want(t, "gaps", query(t, dsn, `SELECT count(*) FROM lapwing_data.gap`), "0")
}

// rows waits until PostgreSQL has more events than some.
func (b *bed) rows(more int) {
	b.t.Helper()
	testbroker.Eventually(b.t, func() error {
		if query(b.t, b.dsn, `SELECT to_regclass('lapwing_data.event') IS NOT NULL`) != "true" {
			return errors.New("there is no table yet")
		}
		var n int
		if _, err := fmt.Sscan(query(b.t, b.dsn, `SELECT count(*) FROM lapwing_data.event`), &n); err != nil {
			return err
		}
		if n <= more {
			return fmt.Errorf("there are %d events of more than %d: %+v", n, more, b.writer.Status())
		}
		return nil
	})
}

// TestRealServerGoesAway kills, stops and pauses the server while events come.
func TestRealServerGoesAway(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	b.start(pg.DSN(), func(_ *journal.Options, o *Options, _ *Settings) {
		o.Timeout, o.ConnectTimeout, o.BatchEvents = 500*time.Millisecond, 500*time.Millisecond, 50
	})
	s := b.send()
	b.rows(0)
	pg.Kill(t)
	b.refused()
	pg.StartAgain(t)
	b.rows(1000)
	pg.Pause(t)
	b.refused()
	pg.Resume(t)
	b.rows(2000)
	pg.Stop(t)
	b.refused()
	pg.StartAgain(t)
	b.rows(3000)
	pg.Kill(t) // while it catches up
	pg.StartAgain(t)
	s.end()
	b.settled()
	s.wantAll(t, b.dsn)
}

// refused waits until the writer says that it cannot write.
func (b *bed) refused() {
	b.t.Helper()
	testbroker.Eventually(b.t, func() error {
		if b.writer.Status().Error == "" {
			return errors.New("the writer does not notice that PostgreSQL is away")
		}
		return nil
	})
}

// TestRealOwnersChange has two backends with states of their own, which own all partitions in turns, sometimes both.
func TestRealOwnersChange(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	var roster sync.Map
	with := func(name string) func(*journal.Options, *Options, *Settings) {
		return func(_ *journal.Options, o *Options, _ *Settings) {
			owns := o.Owns
			o.Member, o.BatchEvents = name, 40
			o.Owns = func(i int) (uint64, bool) {
				_, is := owns(i)
				n, _ := roster.LoadOrStore(name, uint64(1))
				return n.(uint64), is
			}
		}
	}
	b.start(pg.DSN(), with("one"))
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	check(t, err)
	two := b.open(db, t.TempDir(), pg.DSN(), with("two"))
	t.Cleanup(func() { two.stop(); check(t, db.Close()) })
	two.owns.Store(false)
	s := b.send()
	for i := range 12 {
		b.backend.owns.Store(i%3 != 1)
		two.owns.Store(i%3 != 0) // both own in every third turn
		roster.Store([]string{"one", "two"}[i%2], uint64(i+1))
		b.rows(200 * i)
	}
	roster.Store("one", uint64(100))
	two.owns.Store(false)
	b.backend.owns.Store(true)
	s.end()
	b.settled()
	s.wantAll(t, b.dsn)
}

// TestRealDatabaseGoesBack has a standby take over that lacks the newest transactions: once with a new connection, and
// once, as behind PgBouncer, with the old one.
func TestRealDatabaseGoesBack(t *testing.T) {
	for name, first := range map[string]string{
		"with a new connection":   `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lapwing'`,
		"with the old connection": `SELECT 1`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			pg := server(t)
			b.start(pg.DSN(), nil)
			s := b.send()
			b.rows(500)
			execute(t, b.dsn, `CREATE SCHEMA old; CREATE TABLE old.position AS SELECT * FROM lapwing_data.position`)
			b.rows(1500)
			execute(t, b.dsn, first)
			execute(t, b.dsn, `BEGIN; LOCK lapwing_data.position;
				UPDATE lapwing_data.position p SET seq = o.seq FROM old.position o WHERE o.partition = p.partition;
				DELETE FROM lapwing_data.event e USING old.position o WHERE e.partition = o.partition AND e.seq > o.seq;
				DELETE FROM lapwing_data.state_change e USING old.position o WHERE e.partition = o.partition AND e.seq > o.seq;
				UPDATE lapwing_data.latest SET seq = 0;
				COMMIT`)
			b.rows(2000)
			s.end()
			b.settled()
			s.wantAll(t, b.dsn)
		})
	}
}

// TestRealDefinitionsCannotBeWritten has a table that takes no rows. Events are written, and the status says what is not.
func TestRealDefinitionsCannotBeWritten(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	sn := config.With(config.Empty(), config.Checks, &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "c"}})
	b.start(pg.DSN(), func(_ *journal.Options, o *Options, _ *Settings) {
		o.Definitions, o.ActsDefinitions = func() *config.Snapshot { return sn }, func() bool { return false }
	})
	b.put(event("web", "c", 0, 1, "a"))
	b.settled()
	execute(t, b.dsn, `ALTER TABLE lapwing_data.definition ADD CHECK (false)`)
	b.stop()
	b.backend = b.open(b.db, b.dir, b.dsn, func(_ *journal.Options, o *Options, _ *Settings) {
		o.Definitions, o.ActsDefinitions = func() *config.Snapshot { return sn }, func() bool { return true }
	})
	b.refused()
	if s := b.writer.Status(); !s.Connected || !strings.Contains(s.Error, "definition") {
		t.Errorf("status %+v, want one that is connected and names definitions", s)
	}
	b.put(event("web", "c", 1, 2, "b"))
	b.settled()
	if s := b.writer.Status(); s.Error == "" || s.Since.IsZero() {
		t.Errorf("status %+v forgets what is not written", s)
	}
}

// TestRealRestarts stops a backend and opens it anew, with a journal that is behind or not.
func TestRealRestarts(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	b.start(pg.DSN(), nil)
	s := b.send()
	b.rows(500)
	b.stop()
	b.backend = b.open(b.db, b.dir, b.dsn, nil)
	b.rows(1500)
	pg.Stop(t)
	b.refused()
	b.stop()
	b.backend = b.open(b.db, b.dir, b.dsn, nil)
	pg.StartAgain(t)
	b.rows(2500)
	s.end()
	b.settled()
	s.wantAll(t, b.dsn)
}

// TestRealLogIsRestored has a database that is ahead of a log that was made anew from a backup.
func TestRealLogIsRestored(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	b.start(pg.DSN(), nil)
	b.put(event("web", "c", 2, 1, "before"))
	b.settled()
	b.stop()
	execute(t, b.dsn, `UPDATE lapwing_data.position SET seq = seq + 1000, stream = 1, written = written - interval '1 hour';
		UPDATE lapwing_data.latest SET seq = seq + 1000`)
	b.backend = b.open(b.db, b.dir, b.dsn, nil)
	b.put(event("web", "c", 0, 2, "behind"))
	b.settled()
	want(t, "events", query(t, b.dsn, `SELECT entity, "check", status, state, occurrences, output FROM lapwing.events
		ORDER BY output DESC`), "web|c|0|passing|1|behind\nweb|c|2|failing|1|before")
	want(t, "changes", query(t, b.dsn, showTurns), "web|c|2|failing\nweb|c|0|passing")
	want(t, "latest events", query(t, b.dsn, showLatest), "web|c|0|passing|1|1|behind")
}

// TestRealJournalFails has something else in the place of the journal's directory for a while.
func TestRealJournalFails(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	b.start(pg.DSN(), nil)
	b.put(event("web", "c", 0, 1, "before"))
	b.settled()
	check(t, os.Rename(b.dir, b.dir+"-away"))
	check(t, os.WriteFile(b.dir, nil, 0o600))
	b.put(event("web", "c", 2, 2, "meanwhile"))
	testbroker.Eventually(t, func() error {
		if s := b.writer.Status(); !s.Connected || s.Lag < 2 || s.Journal.Error == "" {
			return fmt.Errorf("the journal is not written, and the status is %+v", s)
		}
		return nil
	})
	check(t, os.Remove(b.dir))
	check(t, os.Rename(b.dir+"-away", b.dir))
	b.settled()
	testbroker.Eventually(t, func() error {
		if s := b.writer.Status(); s.Lag > 1 || s.Journal.Error != "" {
			return fmt.Errorf("the journal is written, and the status is %+v", s)
		}
		return nil
	})
	want(t, "latest events", query(t, b.dsn, showLatest), "web|c|2|failing|1|1|meanwhile")
	want(t, "gaps", query(t, b.dsn, `SELECT count(*) FROM lapwing.gaps`), "0")
}

// TestRealJournalIsTooSmall gives the journal no room while PostgreSQL is away.
func TestRealJournalIsTooSmall(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	b.start(pg.DSN(), func(o *journal.Options, _ *Options, _ *Settings) { o.MaxBytes = 3 << 20 })
	b.put(event("gone", "c", 1, 1, "old"), event("web", "c", 0, 1, "old"))
	b.settled()
	pg.Stop(t)
	b.refused()
	random := randomText(1 << 16)
	deleted := false
	for sent := 0; b.journal.Usage().Bytes < 2<<20 || sent < 200; sent++ {
		b.put(event(fmt.Sprint("web", sent), "c", 2, 2, random()))
		if !deleted {
			deleted = true
			b.put(event("web", "c", 2, 2, "newest"), eventlog.Record{
				Kind: eventlog.KindDeleteEvent, Namespace: "default", Entity: "gone", Check: "c", Received: time.Now().UnixMilli(),
			})
		}
	}
	pg.StartAgain(t)
	b.settled()
	if got := query(t, b.dsn, `SELECT count(*) > 0 FROM lapwing.gaps WHERE since < until AND messages > 0`); got != "true" {
		t.Error("there is no row for the gap")
	}
	testbroker.Eventually(t, func() error {
		got := query(t, b.dsn, `SELECT count(*), count(*) FILTER (WHERE entity = 'gone'), max(output) FILTER (WHERE entity = 'web')
			FROM lapwing.current_events`)
		if got != fmt.Sprintf("%d|0|newest", b.pairs()) {
			return fmt.Errorf("latest events: %s, want all %d, none of the deleted one, and the newest of web", got, b.pairs())
		}
		return nil
	})
}

// TestRealSwitchedOffForAWhile keeps no changes for a while. The old database keeps its history of before, and has a gap;
// a new one gets what the journal has of before and after, and has the gap, too.
func TestRealSwitchedOffForAWhile(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	b.start(pg.DSN(), nil)
	one := func(n int64) {
		for i := range 9 { // each partition has some
			b.put(event(fmt.Sprint("web", i), "c", uint32(n%2), n, fmt.Sprint(n)))
		}
	}
	one(1)
	b.settled()
	b.complete(b.dsn)
	began := query(t, b.dsn, `SELECT max(complete)::text FROM lapwing_data.position`)
	check(t, b.writer.Configure(Settings{}))
	one(2)
	testbroker.Eventually(t, func() error {
		for i := range partitions {
			if _, last, err := b.log.Bounds(t.Context(), i); err != nil || b.fold.Position(b.journal.Name(), i) < last {
				return fmt.Errorf("partition %d is not folded: %v", i, err)
			}
		}
		return nil
	})
	for _, dsn := range []string{pg.DSN(), pg.Database(t)} {
		check(t, b.writer.Configure(Settings{DSN: dsn}))
		one(3)
		b.settled()
		b.complete(dsn)
		want(t, "events", query(t, dsn, `SELECT DISTINCT output FROM lapwing.events ORDER BY 1`), "1\n3")
		want(t, "latest events", query(t, dsn, `SELECT DISTINCT output FROM lapwing.current_events`), "3")
		want(t, "partitions with a gap", query(t, dsn, `SELECT count(DISTINCT partition), bool_and(since < until) FROM lapwing.gaps`), "3|true")
	}
	want(t, "begin of the history", query(t, b.dsn, `SELECT max(complete)::text FROM lapwing_data.position`), began)
}

// complete waits until the states of all checks are written.
func (b *bed) complete(dsn string) {
	b.t.Helper()
	testbroker.Eventually(b.t, func() error {
		if got := query(b.t, dsn, `SELECT count(*) FROM lapwing_data.position WHERE due OR complete IS NULL`); got != "0" {
			return fmt.Errorf("%s partitions lack states", got)
		}
		return nil
	})
}

func (b *bed) pairs() (n int) {
	for range b.state.Pairs("") {
		n++
	}
	return n
}

// randomText returns texts that cannot be compressed.
func randomText(size int) func() string {
	x := uint64(1)
	return func() string {
		var s strings.Builder
		for s.Len() < size {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			fmt.Fprintf(&s, "%016x", x)
		}
		return s.String()
	}
}

func TestRealSchemaIsMadeOnce(t *testing.T) {
	dsn := server(t).DSN()
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			conn, err := connect(t.Context(), dsn, time.Minute)
			if err == nil {
				err = errors.Join(migrate(t.Context(), conn), conn.Close(context.Background()))
			}
			errs[i] = err
		})
	}
	all.Wait()
	check(t, errors.Join(errs...))
	want(t, "migrations", query(t, dsn, `SELECT array_agg(version)::text FROM lapwing_data.migration`), "{1,2}")
}

// TestRealSchemaGrows has a database of the first version, with rows.
func TestRealSchemaGrows(t *testing.T) {
	b := newBed(t)
	b.dsn = server(t).DSN()
	first, err := schemaFiles.ReadFile("schema/0001.sql")
	check(t, err)
	execute(t, b.dsn, `CREATE SCHEMA lapwing_data; CREATE SCHEMA lapwing;
		CREATE TABLE lapwing_data.migration (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
		INSERT INTO lapwing_data.migration (version) VALUES (1)`)
	execute(t, b.dsn, string(first))
	execute(t, b.dsn, `INSERT INTO lapwing_data.gap VALUES (now(), 0, 1, 10, 20, NULL, NULL, 'b');
		INSERT INTO lapwing_data.pair VALUES (5, 'default', 'web', 'c'), (6, 'default', 'wéb', 'c');
		CREATE TABLE lapwing_data.state_change_old PARTITION OF lapwing_data.state_change FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
		INSERT INTO lapwing_data.state_change SELECT '2026-01-02', NULL, id, 0, 0, 0, -1, 4, '' FROM lapwing_data.pair`)
	b.start(b.dsn, nil)
	b.put(event("web", "c", 1, 1, "a"), event("wéb", "c", 0, 1, "b"))
	b.settled()
	want(t, "events", query(t, b.dsn, showEvents), "web|c|1|failing|1|a\nwéb|c|0|passing|1|b")
	want(t, "changes", query(t, b.dsn, showTurns), "web|c|4294967295|failing\nweb|c|1|failing\nwéb|c|4294967295|failing\nwéb|c|0|passing")
	want(t, "pairs", query(t, b.dsn, "SELECT count(*) FROM lapwing_data.pair"), "2")
	want(t, "gaps", query(t, b.dsn, `SELECT messages, writer, reason FROM lapwing.gaps`), "10|b|the journal does not have them")
}

// TestRealWrongDatabases configures databases that cannot be used, and then a good one.
func TestRealWrongDatabases(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	newer, foreign, ascii := pg.Database(t), pg.Database(t), pg.Database(t)
	for _, dsn := range []string{newer, foreign} {
		conn, err := connect(t.Context(), dsn, time.Minute)
		check(t, err)
		check(t, errors.Join(migrate(t.Context(), conn), conn.Close(context.Background())))
	}
	execute(t, newer, `INSERT INTO lapwing_data.migration (version) VALUES (999)`)
	execute(t, foreign, `INSERT INTO lapwing_data.position VALUES (0, 12345, 7, 1, 'another', now(), now())`)
	execute(t, ascii, `CREATE SCHEMA lapwing_data`) // of another program, or left by an administrator: it is used
	refused := "postgres://nobody@127.0.0.1:1/lapwing"
	b.start(refused, nil)
	s := b.send()
	for _, one := range []struct{ dsn, says string }{
		{refused, "connect"}, {newer, "upgrade this backend"}, {foreign, "another cluster writes to this database: give each cluster its own. If this cluster was just restored"},
		{strings.Replace(newer, databaseOf(t, newer), "nothing", 1), `database "nothing" does not exist`},
	} {
		check(t, b.writer.Configure(Settings{DSN: one.dsn}))
		b.refused()
		if got := b.writer.Status().Error; !strings.Contains(got, one.says) {
			t.Errorf("it says %q, want something with %q", got, one.says)
		}
	}
	if err := b.writer.Configure(Settings{DSN: ascii, Events: -1}); err == nil {
		t.Error("a negative time was taken")
	}
	check(t, b.writer.Configure(Settings{DSN: ascii}))
	b.dsn = ascii
	b.rows(0)
	s.end()
	b.settled()
	s.wantAll(t, b.dsn)
}

// TestRealFileOfTheDSN: a file is missing that the DSN names. The changes wait, and are written when it is there.
func TestRealFileOfTheDSN(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	plain := pg.Database(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	dsn := plain + "&password=HUNTER2&sslrootcert=" + file
	b.start(dsn, nil)
	r := newReader(t, Settings{DSN: dsn})
	b.put(event("web", "c", 1, 1, "a"))
	b.refused()
	got := b.writer.Status()
	if !got.Configured || !strings.Contains(got.Error, "sslrootcert cannot be read: no such file") || strings.Contains(got.Error, "HUNTER2") {
		t.Errorf("without the file: %+v", got)
	}
	if _, err := r.Begin(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "sslrootcert") || strings.Contains(err.Error(), "HUNTER2") {
		t.Errorf("a reader without the file: %v", err)
	}
	testcert.Copy(t, testcert.New(t, "ca").File, file)
	b.settled()
	want(t, "events", query(t, plain, showEvents), "web|c|1|failing|1|a")
	if c := r.Covers(t.Context(), time.Now(), time.Now()); strings.Contains(c.Reason, "does not answer") {
		t.Errorf("a reader with the file: %+v", c)
	}
}

// TestPasswordOfAConnection: errors of a failed connection do not have the password.
func TestPasswordOfAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var served sync.WaitGroup
	served.Go(func() { // a server that refuses the password
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		s := pgproto3.NewBackend(c, c)
		_, err = s.ReceiveStartupMessage()
		s.Send(&pgproto3.AuthenticationCleartextPassword{})
		err = errors.Join(err, s.Flush(), s.SetAuthType(pgproto3.AuthTypeCleartextPassword))
		asked, receiveErr := s.Receive()
		if p, ok := asked.(*pgproto3.PasswordMessage); !ok || p.Password != "HUNTER2" {
			t.Errorf("the server got %v", asked)
		}
		s.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: `password authentication failed for user "u"`})
		check(t, errors.Join(err, receiveErr, s.Flush()))
	})
	for dsn, says := range map[string]string{
		"postgres://u:HUNTER2@" + l.Addr().String() + "/d?sslmode=disable": "password authentication failed",
		"host=127.0.0.1 port=1 user=u password = HUNTER2":                  "refused",
		"host=no.such.host.invalid user=u password = HUNTER2":              "no.such.host.invalid",
		"host=127.0.0.1 user=u password = HUNTER2 sslmode=maybe":           "sslmode is invalid",
		"postgres://u:a@HUNTER2@127.0.0.1/d":                               "%40",
	} {
		_, err := connect(t.Context(), dsn, time.Minute)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "HUNTER2") {
			t.Errorf("%s: %v, want something with %q", dsn, err, says)
		}
	}
	check(t, l.Close())
	served.Wait()
}

func databaseOf(t *testing.T, dsn string) string {
	config, err := pgx.ParseConfig(dsn)
	check(t, err)
	return config.Database
}

// TestRealOldRowsGo checks the retention, and that events of earlier days get their tables.
func TestRealOldRowsGo(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	b.start(pg.DSN(), func(_ *journal.Options, _ *Options, s *Settings) { s.Events, s.Changes = 0, 0 })
	at := func(days int, output string) eventlog.Record {
		r := event("web", "c", uint32(len(output)%3), 1, output)
		r.Received = time.Now().AddDate(0, 0, -days).UnixMilli()
		return r
	}
	b.put(at(100, "a"), at(40, "bb"), at(1, "ccc"), at(0, "dddd"))
	b.settled()
	want(t, "events", query(t, b.dsn, `SELECT string_agg(output, ',' ORDER BY received) FROM lapwing.events`), "a,bb,ccc,dddd")
	// A writer with shorter retentions removes old tables, and leaves out events that are too old.
	check(t, b.writer.Configure(Settings{DSN: b.dsn, Events: 30 * 24 * time.Hour, Changes: 65 * 24 * time.Hour}))
	b.put(at(50, "eeeee"), at(0, "f"))
	b.settled()
	want(t, "events", query(t, b.dsn, `SELECT string_agg(output, ',' ORDER BY received) FROM lapwing.events`), "ccc,dddd,f")
	want(t, "changes", query(t, b.dsn, `SELECT string_agg(output, ',' ORDER BY received) FROM lapwing.state_changes WHERE output <> 'eeeee'`), "bb,ccc,dddd,f")
}

func TestText(t *testing.T) {
	for in, out := range map[string]string{"": "", "a": "a", "a\x00b": "a\ufffdb", "\xffé": "\ufffdé"} {
		if got := text(in); got != out {
			t.Errorf("text(%q) = %q, want %q", in, got, out)
		}
	}
	if got := string(beginning([]byte("aéé"), 4)); got != "aé" {
		t.Errorf("beginning: %q", got)
	}
}
