package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
)

// TestRealOwnerLacksChanges gives all partitions to a member that joined while PostgreSQL was away. Another one writes what
// it does not have, as far as it can; the rest is a gap.
func TestRealOwnerLacksChanges(t *testing.T) {
	for name, c := range map[string]struct {
		helps, some bool
		gaps        string
	}{
		"another member has them":         {true, false, "0"},
		"another member has some of them": {true, true, "3"},
		"no member has them":              {false, false, "3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			pg := server(t)
			owner := func(name string, patience time.Duration) func(*journal.Options, *Options, *Settings) {
				return func(_ *journal.Options, o *Options, _ *Settings) {
					o.Member, o.Patience, o.BatchEvents = name, patience, 5
					if c.some {
						o.BatchEvents = 1 << 20
					}
				}
			}
			b.start(pg.DSN(), owner("one", time.Hour))
			s := b.send()
			b.rows(100)
			pg.Stop(t)
			b.refused()
			patience := 100 * time.Millisecond
			switch {
			case c.some: // the one that helps does not have them all
				patience = 5 * time.Second
				b.more(b.backend)
				check(t, b.writer.Configure(Settings{}))
				b.more(b.backend)
				check(t, b.writer.Configure(Settings{DSN: pg.DSN()}))
				b.refused()
				b.more(b.backend)
			case c.helps:
				patience = time.Hour
			}
			db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
			check(t, err)
			two := b.open(db, t.TempDir(), "", owner("two", patience)) // it keeps nothing yet
			t.Cleanup(func() { two.stop(); check(t, db.Close()) })
			testbroker.Eventually(t, func() error {
				for i, written := range b.writer.Status().Positions {
					if folded, _ := two.state.Folded(i); folded <= written {
						return fmt.Errorf("two has folded partition %d up to %d, want more than %d", i, folded, written)
					}
				}
				return nil
			})
			check(t, two.writer.Configure(Settings{DSN: pg.DSN()}))
			b.owns.Store(false)
			sent := b.journal.Usage().Bytes
			for one, least := range map[*backend]int64{two: 1, b.backend: sent + 1} {
				testbroker.Eventually(t, func() error {
					if got := one.journal.Usage().Bytes; got < least {
						return fmt.Errorf("the journal has %d bytes, want %d", got, least)
					}
					return nil
				})
			}
			s.end()
			if !c.helps {
				b.stop()
			}
			pg.StartAgain(t)
			testbroker.Eventually(t, func() error { return b.behind(two) })
			if c.helps && !c.some {
				s.wantAll(t, b.dsn)
			}
			want(t, "events that are there twice", query(t, b.dsn, `SELECT count(*) FROM (SELECT FROM lapwing_data.event
				GROUP BY partition, seq, sub HAVING count(*) > 1) x`), "0")
			want(t, "events that are there and in a gap", query(t, b.dsn, `SELECT count(*) FROM lapwing_data.event e
				JOIN lapwing_data.gap g ON g.partition = e.partition AND e.seq > g.from_seq AND e.seq <= g.to_seq`), "0")
			want(t, "gaps", query(t, b.dsn, `SELECT count(*) FROM lapwing.gaps
				WHERE reason = 'the journal does not have them' AND changes IS NULL`), c.gaps)
			want(t, "requests", query(t, b.dsn, `SELECT count(*) FROM lapwing_data.position WHERE wanted IS NOT NULL`), "0")
			if want := s.sent; query(t, b.dsn, `SELECT count(*) FROM lapwing_data.latest WHERE output::int = $1 - 1`, want) != "7" {
				t.Errorf("not all of the latest events are number %d", want-1)
			}
		})
	}
}

// more waits until a backend has folded further messages of each partition.
func (b *bed) more(one *backend) {
	b.t.Helper()
	for i := range partitions {
		before, _ := one.state.Folded(i)
		testbroker.Eventually(b.t, func() error {
			if now, _ := one.state.Folded(i); now <= before {
				return fmt.Errorf("partition %d stays at %d", i, now)
			}
			return nil
		})
	}
}
