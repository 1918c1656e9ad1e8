package postgres

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/report/reporttest"
)

// TestRealPooler writes and reads through PgBouncer, which gives each transaction another connection.
func TestRealPooler(t *testing.T) {
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			pg := testpostgres.Start(t, testpostgres.Options{NoFsync: true})
			through := pg.Pooler(t, mode)
			b := newBed(t)
			b.start(through(pg.DSN()), func(_ *journal.Options, o *Options, _ *Settings) {
				o.Timeout, o.ConnectTimeout = 500*time.Millisecond, 500*time.Millisecond // PgBouncer waits for its server
			})
			b.dsn = pg.DSN() // of the test itself
			s := b.send()
			b.rows(500)
			pg.Kill(t)
			b.refused()
			pg.StartAgain(t)
			b.rows(1500)
			s.end()
			b.settled()
			s.wantAll(t, pg.DSN())
			reporttest.Suite(t, func(t *testing.T, fixtures []reporttest.Fixture) report.Source {
				dsn := pg.Database(t)
				store(t, through(dsn), fixtures)
				return newReader(t, Settings{DSN: through(dsn), PoolSize: 2})
			})
		})
	}
}
