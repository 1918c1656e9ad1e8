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

// TestRealOwnerLacksChanges gives all partitions to a member that joined while PostgreSQL was away. The others write what
// it does not have; without them it is a gap.
func TestRealOwnerLacksChanges(t *testing.T) {
	for name, c := range map[string]struct {
		helps bool
		gaps  string
	}{"another member has them": {true, "0"}, "no member has them": {false, "3"}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			pg := server(t)
			owner := func(name string, patience time.Duration) func(*journal.Options, *Options, *Settings) {
				return func(_ *journal.Options, o *Options, _ *Settings) {
					o.Member, o.Patience, o.BatchEvents = name, patience, 5
				}
			}
			b.start(pg.DSN(), owner("one", time.Hour))
			s := b.send()
			b.rows(100)
			pg.Stop(t)
			b.refused()
			patience := 100 * time.Millisecond
			if c.helps {
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
			if c.helps {
				s.wantAll(t, b.dsn)
			}
			want(t, "gaps", query(t, b.dsn, `SELECT count(*) FROM lapwing.gaps WHERE reason = 'the journal does not have them' AND changes IS NULL`), c.gaps)
			want(t, "requests", query(t, b.dsn, `SELECT count(*) FROM lapwing_data.position WHERE wanted IS NOT NULL`), "0")
			if want := s.sent; query(t, b.dsn, `SELECT count(*) FROM lapwing_data.latest WHERE output::int = $1 - 1`, want) != "7" {
				t.Errorf("not all of the latest events are number %d", want-1)
			}
		})
	}
}
