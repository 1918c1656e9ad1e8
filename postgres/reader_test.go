package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/report/reporttest"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// newReader returns a reader of a log with one partition, of which message 100 is folded.
func newReader(t *testing.T, s Settings) *Reader {
	t.Helper()
	r, err := NewReader(ReaderOptions{Streams: []uint64{1}, Folded: func(int) uint64 { return 100 }})
	check(t, err)
	t.Cleanup(func() { check(t, r.Stop()) })
	check(t, r.Configure(s))
	return r
}

// store writes histories as the writer does.
func store(t *testing.T, dsn string, histories []report.History) {
	t.Helper()
	conn, err := connect(t.Context(), dsn, time.Minute)
	check(t, err)
	defer func() { check(t, conn.Close(context.Background())) }()
	check(t, migrate(t.Context(), conn))
	var b batch
	b.ids.secret, err = readSecret(t.Context(), conn)
	check(t, err)
	b.reset(nil, nil)
	seq := uint64(0)
	for _, h := range histories {
		for _, c := range h.Changes {
			seq++
			e := journal.Entry{
				Seq: seq / 7, Sub: int(seq % 7), Flags: journal.Changed, Namespace: []byte(h.Namespace), Entity: []byte(h.Entity),
				Check: []byte(h.Check), Received: c.Time.UnixMilli(), Status: c.Status, Executed: c.Time.Unix(),
			}
			for flag, is := range map[uint32]bool{
				journal.Deleted: c.Deleted, journal.Flapping: c.Flapping, journal.Silenced: c.Silenced, journal.Missing: c.Missing,
			} {
				if is {
					e.Flags |= flag
				}
			}
			if !c.Deleted {
				ev := resource.Event{Check: &resource.Check{Status: c.Status, Output: fmt.Sprint("status ", c.Status)}}
				e.Body = ev.AppendProto(nil)
			}
			b.add(0, &e, cutoffs{time.Now().UnixMilli(), firstTime}, nil) // without events
		}
	}
	s := spans{table: tableChange, monthly: true, exist: map[int64]struct{}{}}
	for d := range b.days {
		check(t, s.ensure(t.Context(), conn, time.Unix(d*24*60*60, 0)))
	}
	check(t, inTransaction(t.Context(), conn, func(tx pgx.Tx) error {
		return errors.Join(writeLatest(t.Context(), tx, b.latest), b.changes.copyTo(t.Context(), tx, "lapwing_data.state_change", changeColumns))
	}))
	execute(t, dsn, `INSERT INTO lapwing_data.position (partition, stream, seq, roster, writer, received, written, complete)
		VALUES (0, 1, 100, 1, 'm', now(), now(), '2025-12-31')`)
}

func TestRealReports(t *testing.T) {
	pg := testpostgres.Start(t, testpostgres.Options{NoFsync: true})
	reporttest.Suite(t, func(t *testing.T, fixtures []reporttest.Fixture) report.Source {
		dsn := pg.Database(t)
		store(t, dsn, fixtures)
		return newReader(t, Settings{DSN: dsn, PoolSize: 2, ConnLifetime: time.Minute})
	})
}

// TestRealReaderStopsEarly has callers that want no more, or whose time is over. Each leaves the pool usable.
func TestRealReaderStopsEarly(t *testing.T) {
	dsn := server(t).DSN()
	var all []report.History
	for i := range 200 {
		all = append(all, report.History{Namespace: "default", Entity: fmt.Sprint("e", i), Check: "c", Changes: reporttest.Changes("1:0 2:1 3:0")})
	}
	store(t, dsn, all)
	r := newReader(t, Settings{DSN: dsn, PoolSize: 1})
	in := report.Range{Namespace: "default", Since: reporttest.Start.Add(2 * time.Second), Until: reporttest.Start.Add(time.Hour)}
	every := func(string, string, string) bool { return true }
	for range r.Changes(t.Context(), in, every) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for _, err := range r.Changes(ctx, in, every) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) && last != nil { // a result that has arrived whole is no error
		t.Errorf("cancelled: %v", last)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range r.Changes(over, in, every) {
		if last = err; !errors.Is(err, context.Canceled) {
			t.Errorf("already cancelled: %v", err)
		}
	}
	n := 0
	for h, err := range r.Changes(t.Context(), in, func(_, entity, _ string) bool { return entity != "e7" }) {
		check(t, err)
		if n++; len(h.Changes) != 3 {
			t.Errorf("%s has %d changes, want the one before the time and two", h.Entity, len(h.Changes))
		}
	}
	if n != 199 {
		t.Errorf("%d histories, want 199", n)
	}
	check(t, r.Stop())
	if _, err := r.Begin(t.Context(), "default"); err == nil {
		t.Error("a stopped reader answers")
	}
}

func TestRealHistoryOfOne(t *testing.T) {
	dsn := server(t).DSN()
	store(t, dsn, []report.History{
		{Namespace: "default", Entity: "web", Check: "disk", Changes: reporttest.Changes("10:0 20:2f 30:1m 40:2s 50:del 60:0")},
		{Namespace: "default", Entity: "web", Check: "other", Changes: reporttest.Changes("10:3")},
	})
	r := newReader(t, Settings{DSN: dsn})
	all := func(since, until int, limit int) (out []string) {
		for before := ""; ; {
			changes, next, err := r.History(t.Context(), "default", "web", "disk", reporttest.Start.Add(time.Duration(since)*time.Second),
				reporttest.Start.Add(time.Duration(until)*time.Second), before, limit)
			check(t, err)
			if len(changes) > limit {
				t.Errorf("%d changes, the limit is %d", len(changes), limit)
			}
			for _, c := range changes {
				out = append(out, fmt.Sprintf("%d:%d,%v,%v,%v,%v,%s", int(c.Time.Sub(reporttest.Start).Seconds()), c.Status, c.Flapping, c.Missing,
					c.Silenced, c.Deleted, c.Output))
			}
			if before = next; before == "" {
				return out
			}
		}
	}
	whole := []string{
		"60:0,false,false,false,false,status 0", "50:0,false,false,false,true,", "40:2,false,false,true,false,status 2",
		"30:1,false,true,false,false,status 1", "20:2,true,false,false,false,status 2", "10:0,false,false,false,false,status 0",
	}
	for _, limit := range []int{1, 2, 3, 5, 6, 7} {
		if got := all(0, 100, limit); !slices.Equal(got, whole) {
			t.Errorf("with limit %d: %q, want %q", limit, got, whole)
		}
	}
	if got := all(20, 40, 2); !slices.Equal(got, whole[2:5]) {
		t.Errorf("of a time: %q, want %q", got, whole[2:5])
	}
	for _, bad := range []string{"x", "1", "1-x", "-1", "1-99999999999"} {
		if _, _, err := r.History(t.Context(), "default", "web", "disk", time.Time{}, time.Now(), bad, 1); !errors.Is(err, report.ErrPlace) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("7-1")
	f.Fuzz(func(t *testing.T, text string) {
		seq, sub, err := parsePlace(text)
		if err != nil {
			return
		}
		if s, u, err := parsePlace(fmt.Sprintf("%d-%d", seq, sub)); s != seq || u != sub || err != nil {
			t.Errorf("%q became %d, %d, then %d, %d", text, seq, sub, s, u)
		}
	})
}

func TestRealCoverage(t *testing.T) {
	pg := server(t)
	dsn := pg.DSN()
	store(t, dsn, []report.History{{Namespace: "default", Entity: "e", Check: "c", Changes: reporttest.Changes("1:0")}})
	r := newReader(t, Settings{DSN: dsn})
	begin := time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)
	f := func(change string, s Settings, until time.Time, reason string, gaps int) {
		t.Helper()
		if change != "" {
			execute(t, dsn, change)
		}
		s.DSN = dsn
		check(t, r.Configure(s))
		c := r.Covers(t.Context(), until.Add(-time.Hour), until)
		if reason == "" && c.Reason != "" || !strings.Contains(c.Reason, reason) || c.Gaps != gaps {
			t.Errorf("after %q: %+v, want the reason %q and %d gaps", change, c, reason, gaps)
		}
		if reason == "" && s.Changes == 0 && !c.Begin.Equal(begin) || s.Changes > 0 && time.Since(c.Begin).Round(time.Hour) != s.Changes {
			t.Errorf("after %q it begins at %v", change, c.Begin)
		}
	}
	now := time.Now()
	f("", Settings{}, now, "", 0)
	f("", Settings{Changes: 24 * time.Hour}, now, "", 0)
	f(`UPDATE lapwing_data.position SET received = now() - interval '1 day'`, Settings{}, now, "", 0) // all is written
	f(`UPDATE lapwing_data.position SET seq = 99`, Settings{}, now, "lags", 0)
	f("", Settings{}, now.Add(-25*time.Hour), "", 0) // the report ends before
	f(`UPDATE lapwing_data.position SET received = now()`, Settings{}, now, "", 0)
	f(`UPDATE lapwing_data.position SET received = NULL`, Settings{}, now, "lags", 0)
	f(`UPDATE lapwing_data.position SET seq = 100, complete = NULL`, Settings{}, now, "all checks yet", 0)
	f(`UPDATE lapwing_data.position SET complete = '2025-12-31', stream = 2`, Settings{}, now, "this event log", 0)
	f(`UPDATE lapwing_data.position SET stream = 1, due = true`, Settings{}, now, "all checks yet", 0)
	f(`UPDATE lapwing_data.position SET due = false`, Settings{PoolSize: 1}, now, "", 0)
	f(`INSERT INTO lapwing_data.gap (partition, stream, from_seq, to_seq, since, until, writer)
		VALUES (0, 1, 1, 2, now() - interval '3 hours', now() - interval '2 hours', 'm')`, Settings{}, now, "", 0)
	f("", Settings{}, now.Add(-90*time.Minute), "", 1)
	f(`UPDATE lapwing_data.gap SET since = NULL, until = NULL`, Settings{}, now, "", 1)

	// While it is away it is no reason to wait, and nothing is left over from then.
	pg.Pause(t)
	if c := r.Covers(t.Context(), now, now); !strings.Contains(c.Reason, "does not answer") {
		t.Errorf("paused: %+v", c)
	}
	pg.Resume(t)
	pg.Kill(t)
	if c := r.Covers(t.Context(), now, now); !strings.Contains(c.Reason, "does not answer") {
		t.Errorf("killed: %+v", c)
	}
	pg.StartAgain(t)
	f("DELETE FROM lapwing_data.gap", Settings{}, now, "", 0)
	check(t, r.Configure(Settings{DSN: pg.Database(t)}))
	if c := r.Covers(t.Context(), now, now); !strings.Contains(c.Reason, "no tables") {
		t.Errorf("an empty database: %+v", c)
	}
	if err := r.Configure(Settings{DSN: "host=x", PoolSize: -1}); err == nil {
		t.Error("a negative size was taken")
	}
	check(t, r.Configure(Settings{}))
	if _, err := r.Begin(t.Context(), ""); !errors.Is(err, ErrNotConfigured) || r.Configured() {
		t.Errorf("without a DSN: %v", err)
	}
}

// armed has the pairs whose deadlines the state has armed.
type armed struct {
	mu  sync.Mutex
	ids []uint64
}

func (a *armed) options(o *state.Options) {
	o.Arm = func(id uint64, _ int64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ids = append(a.ids, id)
	}
}

// take returns the pairs that were armed since the last call, in a fixed order.
func (a *armed) take() []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.ids
	a.ids = nil
	slices.Sort(ids)
	return slices.Compact(ids)
}

// missing is what a deadline makes of a pair's last event.
func missing(o state.Overdue, received int64) eventlog.Record {
	r := event(o.Entity, o.Check, 1, received/1000, "no result came")
	r.Flags, r.Basis, r.Received = eventlog.FlagDeadline, o.Position, received
	return r
}

// TestRealStatesFromBefore switches PostgreSQL on when checks have had their states for long: reports know them. Months
// later the changes from then are removed, and reports still know them.
func TestRealStatesFromBefore(t *testing.T) {
	b := newBed(t)
	pg := server(t)
	var armed armed
	b.options = armed.options
	b.start("", nil)
	b.put(event("web1", "c", 0, 1, "a"), event("web5", "c", 2, 1, "e"), event("web2", "c", 2, 1, "b"), event("web3", "c", 2, 1, "c"))
	due := event("web4", "c", 0, 1, "")
	due.Due = due.Received
	b.put(due)
	for _, id := range armed.take() {
		o, ok := b.state.Overdue(id)
		if !ok || o.Entity != "web4" {
			t.Fatalf("overdue is %+v", o)
		}
		b.put(missing(o, time.Now().UnixMilli()))
	}
	b.dsn = pg.DSN()
	check(t, b.writer.Configure(Settings{DSN: b.dsn}))
	b.put(event("web1", "c", 0, 2, "as before"), event("web2", "c", 0, 2, "changed"), event("web3", "c", 2, 2, "as before"),
		eventlog.Record{Kind: eventlog.KindDeleteEvent, Namespace: "default", Entity: "web3", Check: "c", Received: time.Now().UnixMilli()})
	for i := range partitions { // each partition has a message
		for j := 0; ; j++ {
			name := fmt.Sprint("other", i, j)
			if b.log.Partition("default", name) == i {
				b.put(event(name, "c", 0, 1, ""))
				break
			}
		}
	}
	b.settled()
	r, err := NewReader(ReaderOptions{Streams: b.journal.Streams(), Folded: func(i int) uint64 { n, _ := b.state.Folded(i); return n }})
	check(t, err)
	defer func() { check(t, r.Stop()) }()
	check(t, r.Configure(Settings{DSN: b.dsn}))
	var c report.Coverage
	for deadline := time.Now().Add(time.Minute); ; {
		if c = r.Covers(t.Context(), time.Now(), time.Now()); c.Reason == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never has all checks: %+v", c)
		}
	}
	states := func() string {
		t.Helper()
		var out []string
		for h, err := range r.Changes(t.Context(), report.Range{Namespace: "default", Since: c.Begin, Until: c.Begin.Add(time.Hour)},
			func(_, entity, _ string) bool { return strings.HasPrefix(entity, "web") }) {
			check(t, err)
			if last := h.Changes[len(h.Changes)-1]; !last.Deleted {
				out = append(out, fmt.Sprintf("%s:%d,%v", h.Entity, last.Status, last.Missing))
			}
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	const present = "web1:0,false web2:0,false web4:1,true"
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Namespace: "default", Entity: "web5", Check: "c", Received: time.Now().UnixMilli()})
	b.settled()
	want(t, "states", states(), present)
	turns := query(t, b.dsn, showTurns)
	if n := strings.Count(turns, "web1|c|0|passing"); n != 1 || strings.Count(turns, "web1") != 1 {
		t.Errorf("web1 has its first state, and no other:\n%s", turns)
	}
	// The view has the states from before, so SQL finds outages that had begun.
	if !strings.Contains(turns, "web4|c|1|failing\nweb5|c|2|failing\nweb5|c|0|deleted") || strings.Count(turns, "web2") != 1 {
		t.Errorf("web2 changed once, web4 fails, and web5 failed before it was deleted:\n%s", turns)
	}
	b.stop()
	conn, err := connect(t.Context(), b.dsn, time.Minute)
	check(t, err)
	defer func() { check(t, conn.Close(context.Background())) }()
	s := spans{table: tableChange, monthly: true, keep: time.Hour, exist: map[int64]struct{}{}}
	dropped, err := s.expire(t.Context(), conn, time.Now().AddDate(0, 2, 0))
	check(t, err)
	if len(dropped) != 1 {
		t.Errorf("dropped %q", dropped)
	}
	c.Begin = time.Now().AddDate(0, 2, 0)
	want(t, "states after months", states(), present)
	want(t, "changes", query(t, b.dsn, showTurns), "")
}
