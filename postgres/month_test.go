package postgres

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/state"
)

var reportEvents = flag.Int("report-events", 20_000, "events of TestRealSameReports")

// month generates the events of a month: each check of each entity has results in even intervals.
type month struct {
	random          *rand.Rand
	entities, ticks int
	from            time.Time
	checks          []monthCheck
}

const (
	monthChecks = 10 // of each entity
	monthLength = 30 * 24 * time.Hour
)

// monthCheck is what goes on with a check of an entity.
type monthCheck struct {
	entity, name string
	status       uint32
	left         int // results until the incident, the flapping or the silence ends
	flapping     bool
	silenced     bool
}

func newMonth(events int) *month {
	m := &month{random: rand.New(rand.NewPCG(20261001, 7)), entities: min(2000, max(events/2000, 3)), from: time.Now().Add(-monthLength - day)}
	m.ticks = max(events/(m.entities*monthChecks), 1)
	for i := range m.entities {
		for j := range monthChecks {
			m.checks = append(m.checks, monthCheck{entity: fmt.Sprint("host", i), name: fmt.Sprint("check", j)})
		}
	}
	return m
}

const day = 24 * time.Hour

// chance is true once in n times.
func (m *month) chance(n int) bool { return m.random.IntN(n) == 0 }

// tick returns one result of each check, and deletions.
func (m *month) tick(n int) (all []eventlog.Record) {
	step := monthLength / time.Duration(m.ticks)
	for i := range m.checks {
		c := &m.checks[i]
		at := m.from.Add(time.Duration(n)*step + time.Duration(i)*step/2/time.Duration(len(m.checks))).UnixMilli()
		switch {
		case c.left == 0:
			c.status, c.flapping, c.silenced = 0, false, false
			switch {
			case m.chance(50):
				c.status, c.left = 1+uint32(m.random.IntN(3)), 1+m.random.IntN(20)
				c.silenced = m.chance(5)
			case m.chance(300):
				c.flapping, c.left = true, 25
			case m.chance(200):
				c.silenced, c.left = true, 1+m.random.IntN(20)
			}
		case c.flapping:
			c.status = uint32(m.random.IntN(2)) * 2
			c.left--
		default:
			c.silenced = c.silenced || c.status > 0 && m.chance(10) // it is acknowledged
			c.left--
		}
		r := event(c.entity, c.name, c.status, at/1000, "the output of a check")
		r.Received, r.LowFlap, r.HighFlap, r.Due = at, 15, 30, at+step.Milliseconds()
		if c.silenced {
			r.Flags |= eventlog.FlagSilenced
		}
		all = append(all, r)
		gone := eventlog.Record{Kind: eventlog.KindDeleteEvent, Namespace: "default", Entity: c.entity, Check: c.name, Received: at + 1}
		switch {
		case m.chance(10_000):
			gone.Kind, gone.Check = eventlog.KindDeleteEntity, ""
			fallthrough
		case m.chance(1000):
			all = append(all, gone)
		}
	}
	return all
}

// TestRealSameReports sends a month of events through the log and the fold to the embedded history and, over the journal,
// to PostgreSQL. Both give the same reports. The month of 10 million events:
//
//	go test ./postgres -run TestRealSameReports -report-events 10000000 -timeout 60m -v
func TestRealSameReports(t *testing.T) {
	b := newBed(t)
	var armed armed
	b.options = func(o *state.Options) {
		armed.options(o)
		o.HistoryAge, o.HistoryLimit, o.WriteDelay = 400*day, 1<<30, 10*time.Second
	}
	pg := testpostgres.Start(t, testpostgres.Options{NoFsync: true, Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "512MB"}})
	b.dsn = pg.DSN()
	b.start(b.dsn, func(_ *journal.Options, o *Options, s *Settings) { o.Share, s.Events = 100, day }) // no report reads events
	m := newMonth(*reportEvents)
	begin, sent, missed := time.Now(), 0, 0
	step := (monthLength / time.Duration(m.ticks)).Milliseconds()
	for n := range m.ticks {
		all := m.tick(n)
		b.put(all...)
		sent += len(all)
		all = all[:0]
		for _, id := range armed.take() {
			if !m.chance(300) {
				continue
			}
			if o, ok := b.state.Overdue(id); ok {
				all = append(all, missing(o, m.from.UnixMilli()+int64(n)*step+step*3/4))
			}
		}
		b.put(all...)
		sent, missed = sent+len(all), missed+len(all)
	}
	folded := time.Since(begin)
	for err := b.behind(b.backend); err != nil; {
		before := fmt.Sprint(b.writer.Status().Positions) // as long as the writer gets on, it may take its time
		testbroker.Eventually(t, func() error {
			if err = b.behind(b.backend); err != nil && fmt.Sprint(b.writer.Status().Positions) == before {
				return err
			}
			return nil
		})
	}
	// The events are of days when there was no PostgreSQL.
	b.complete(b.dsn)
	execute(t, b.dsn, "UPDATE lapwing_data.position SET complete = '2026-01-01'")
	execute(t, b.dsn, "ANALYZE")
	t.Logf("%d records, %d of them missing results, folded in %s, written after %s; changes, pairs: %s", sent, missed, folded.Round(time.Millisecond),
		time.Since(begin).Round(time.Millisecond), query(t, b.dsn, "SELECT count(*), count(DISTINCT pair_id) FROM lapwing_data.state_change WHERE flags & 4 <> 0"))

	r, err := NewReader(ReaderOptions{Streams: b.journal.Streams(), Folded: func(i int) uint64 { n, _ := b.state.Folded(i); return n }})
	check(t, err)
	defer func() { check(t, r.Stop()) }()
	check(t, r.Configure(Settings{DSN: b.dsn}))
	in := report.Range{Namespace: "default", Since: m.from.Add(2 * day), Until: m.from.Add(29 * day)}
	var took [2]time.Duration
	for _, kind := range report.Kinds {
		groupings := []string{report.ByPair, report.ByEntity, report.ByCheck}
		if kind == report.Incidents { // each row is one incident of a check
			groupings = groupings[:1]
		}
		for _, by := range groupings {
			var texts [2]string
			for i, src := range []report.Source{b.state.Histories(), r} {
				begin := time.Now()
				rep, err := report.Run(t.Context(), src, report.Query{Kind: kind, By: by, Range: in})
				check(t, err)
				took[i] += time.Since(begin)
				if i == 1 {
					t.Logf("%s by %s: %d rows, PostgreSQL in %s", kind, by, len(rep.Rows), time.Since(begin).Round(time.Millisecond))
				}
				if tot := rep.Total; tot.Pairs == 0 || tot.Incidents == 0 || tot.Missing == 0 || tot.Silenced == 0 || tot.Flapping == 0 || tot.NoData == 0 {
					t.Errorf("%s by %s: the month has not all that it should: %+v", kind, by, tot)
				}
				text, err := json.Marshal(rep)
				check(t, err)
				texts[i] = string(text)
			}
			if texts[0] != texts[1] {
				t.Errorf("%s by %s differ: embedded\n%.2000s\nPostgreSQL\n%.2000s", kind, by, texts[0], texts[1])
			}
		}
	}
	t.Logf("the reports: embedded in %s, PostgreSQL in %s", took[0].Round(time.Millisecond), took[1].Round(time.Millisecond))
}
