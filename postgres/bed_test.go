package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := testpostgres.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// bed is a log, and a backend's parts from the log to PostgreSQL.
type bed struct {
	t   *testing.T
	log *eventlog.Log
	db  *pebble.DB
	dsn string
	// options changes those of the state; nil changes none.
	options func(*state.Options)
	*backend
}

// backend has the parts that read the log.
type backend struct {
	t       *testing.T
	dir     string
	state   *state.State
	journal *journal.Journal
	fold    *fold.Fold
	writer  *Projection
	reg     *prometheus.Registry
	owns    atomic.Bool
	stop    func()
}

const partitions = 3

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t}
	_, nats := testconfig.WithBroker(t)
	log, err := eventlog.New(eventlog.Options{
		Broker: nats, Dir: t.TempDir(), Origin: "here", Partitions: partitions, FlushInterval: time.Millisecond, MinFree: 1,
	})
	check(t, err)
	check(t, log.Start(t.Context()))
	b.log = log
	b.db, err = pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	check(t, err)
	t.Cleanup(func() {
		check(t, log.Stop())
		check(t, b.db.Close())
	})
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open starts the parts of a backend whose state is in db, with a journal in dir.
func (b *bed) open(db *pebble.DB, dir, dsn string, change func(*journal.Options, *Options, *Settings)) *backend {
	b.t.Helper()
	one := &backend{t: b.t, dir: dir, reg: prometheus.NewRegistry()}
	one.owns.Store(true)
	jo := journal.Options{Dir: dir, Delay: 5 * time.Millisecond, MinFree: 1, Registerer: one.reg}
	for i := range b.log.Partitions() {
		jo.Streams = append(jo.Streams, b.log.StreamID(i))
	}
	o := Options{
		Member: "m", Interval: 5 * time.Millisecond, RetryMax: 100 * time.Millisecond, Registerer: one.reg,
		Patience: 100 * time.Millisecond,
		Owns:     func(int) (uint64, bool) { return 1, one.owns.Load() },
	}
	settings := Settings{DSN: dsn}
	if change != nil {
		change(&jo, &o, &settings)
	}
	var err error
	one.journal, err = journal.Open(jo)
	check(b.t, err)
	so := state.Options{
		Log: b.log, DB: db, Kept: one.journal.Kept, HistoryAge: time.Hour, HistoryLimit: 100, WriteDelay: 10 * time.Millisecond,
		Entity: func(string, string) (*resource.EntityConfig, bool) { return nil, false },
	}
	if b.options != nil {
		b.options(&so)
	}
	one.state, err = state.New(so)
	check(b.t, err)
	one.fold, err = fold.New(fold.Options{Log: b.log, State: one.state, Followers: []fold.Follower{one.journal}})
	check(b.t, err)
	one.journal.Connect(func(i int) uint64 { return one.fold.Position(one.journal.Name(), i) }, one.state.LoadedAt)
	o.Journal, o.State = one.journal, one.state
	one.writer, err = New(o)
	check(b.t, err)
	check(b.t, one.writer.Configure(settings))
	check(b.t, one.journal.Start(b.t.Context()))
	check(b.t, one.fold.Start(b.t.Context()))
	check(b.t, one.writer.Start(b.t.Context()))
	one.stop = sync.OnceFunc(func() {
		check(b.t, one.writer.Stop())
		check(b.t, one.fold.Stop())
		check(b.t, one.journal.Stop())
		check(b.t, one.state.Stop())
	})
	b.t.Cleanup(one.stop)
	return one
}

// start opens the bed's own backend.
func (b *bed) start(dsn string, change func(*journal.Options, *Options, *Settings)) {
	b.t.Helper()
	b.dsn = dsn
	b.backend = b.open(b.db, b.t.TempDir(), dsn, change)
}

type done chan error

func (d done) Logged(_ uint64, _ int, _ uint64, err error) { d <- err }

// put appends events, and waits until they are durable.
func (b *bed) put(records ...eventlog.Record) {
	b.t.Helper()
	d := make(done, len(records))
	for i := range records {
		check(b.t, b.log.Append(&records[i], d, 0))
	}
	for range records {
		check(b.t, <-d)
	}
}

// event is a result of a check.
func event(entity, name string, status uint32, executed int64, output string) eventlog.Record {
	ev := resource.Event{Check: &resource.Check{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Status: status, Executed: executed, Output: output,
		Duration: 0.25,
	}}
	return eventlog.Record{
		Kind: eventlog.KindEvent, Namespace: "default", Entity: entity, Check: name, Status: status, Executed: executed,
		Received: time.Now().UnixMilli(), Body: ev.AppendProto(nil),
	}
}

// settled waits until PostgreSQL has all of the log.
func (b *bed) settled() {
	b.t.Helper()
	testbroker.Eventually(b.t, func() error { return b.behind(b.backend) })
}

// behind returns what PostgreSQL lacks of the log as one backend sees it, or nil.
func (b *bed) behind(one *backend) error {
	s := one.writer.Status()
	for i := range b.log.Partitions() {
		_, last, err := b.log.Bounds(b.t.Context(), i)
		if err != nil {
			return err
		}
		if len(s.Positions) <= i || s.Positions[i] < last {
			return fmt.Errorf("partition %d is written up to %v of %d: %+v", i, s.Positions, last, s)
		}
	}
	return nil
}

// query returns the rows of a query as lines, with a bar between columns.
func query(t testing.TB, dsn, sql string, args ...any) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	defer func() { check(t, conn.Close(context.Background())) }()
	found, err := conn.Query(t.Context(), sql, args...)
	check(t, err)
	lines, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		var b strings.Builder
		for i, v := range values {
			if i > 0 {
				b.WriteString("|")
			}
			fmt.Fprint(&b, v)
		}
		return b.String(), err
	})
	check(t, err)
	return strings.Join(lines, "\n")
}

// execute runs statements.
func execute(t testing.TB, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	_, err = conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	check(t, errors.Join(err, conn.Close(context.Background())))
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}
