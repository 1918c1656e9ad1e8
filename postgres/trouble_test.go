package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/postgres/journal"
)

// TestTrouble: an operator learns of a failure after minutes, and of a journal or disk that fills, with what to do.
func TestTrouble(t *testing.T) {
	now := time.Unix(1e9, 0)
	const gb = 1e9
	f := func(name string, s Status, open bool, want uint32, texts ...string) {
		t.Helper()
		s.Configured = name != "not configured"
		if s.Journal.MaxBytes == 0 {
			s.Journal.MaxBytes = 8 * gb
		}
		got, text := s.Trouble(now, open)
		if got != want || (got == 0) != (text == "") {
			t.Errorf("%s: status %d, want %d: %q", name, got, want, text)
		}
		for _, part := range texts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q lacks %q", name, text, part)
			}
		}
	}
	failed := func(ago time.Duration, u journal.Usage) Status {
		return Status{Server: "db:5432/x", Error: "connection refused", Since: now.Add(-ago), Lag: ago.Seconds(), Journal: u}
	}
	well := func(u journal.Usage) Status { return Status{Server: "db:5432/x", Connected: true, Lag: 30, Journal: u} }

	unwritten := func(ago time.Duration, u journal.Usage) journal.Usage {
		u.Error, u.Since = "begin a file: no space left on device", now.Add(-ago)
		return u
	}

	f("not configured", failed(time.Hour, journal.Usage{}), false, 0)
	f("well", well(journal.Usage{}), false, 0)
	f("fails for a short time", failed(4*time.Minute, journal.Usage{Owed: gb}), false, 0)
	f("fails", failed(12*time.Minute, journal.Usage{Owed: 2 * gb, Growth: 1e6}), false, 1,
		"PostgreSQL has failed for 12 min: connection refused. It is 12 min behind. The journal keeps 2.0 GB for it, 25 % of its "+
			"bound of 8.0 GB, and grows by 1.0 MB a second: it is full in 100 min, and then the oldest changes are lost.",
		"Alerts are not affected. To do: check that db:5432/x runs", "lapwing postgres status")
	f("fails, soon full", failed(12*time.Minute, journal.Usage{Owed: 2 * gb, Growth: 1e7}), false, 2, "it is full in 10 min")
	f("slow", well(journal.Usage{Owed: 6.5 * gb, Growth: -1e6}), false, 1, "more slowly than they come", "shrinks by 1.0 MB",
		"see what slows down db:5432/x", "raise --postgres-journal-bytes")
	f("as good as full", well(journal.Usage{Owed: 7.7 * gb}), false, 2)
	f("full", failed(time.Hour, journal.Usage{Owed: 8 * gb, Growth: 5}), false, 2, "and is full: the oldest changes are lost now")
	f("below the bound", well(journal.Usage{Owed: 6 * gb}), false, 0)
	f("not far below the bound", well(journal.Usage{Owed: 6 * gb}), true, 1)
	f("far below the bound", well(journal.Usage{Owed: 5 * gb}), true, 0)
	f("disk", well(journal.Usage{Owed: gb, Free: 12e8, MinFree: gb}), false, 1, "Its disk has 1.2 GB free; below 1.0 GB",
		"make room on the disk of the state directory")
	f("disk full", well(journal.Usage{Owed: gb, Free: 9e8, MinFree: gb}), false, 2)
	f("disk full, nothing owed", well(journal.Usage{Free: 9e8, MinFree: gb}), false, 0)
	f("disk with some room", well(journal.Usage{Owed: gb, Free: 14e8, MinFree: gb}), true, 1)
	f("journal fails for a short time", well(unwritten(59*time.Second, journal.Usage{Dropping: true})), false, 0)
	f("journal fails", well(unwritten(3*time.Minute, journal.Usage{Owed: gb})), false, 1,
		"The journal for PostgreSQL could not be written for 3 min: begin a file: no space left on device. Changes wait in memory, "+
			"and are lost if they become too many. PostgreSQL is 30 s behind. The journal keeps 1.0 GB for it",
		"To do: check that postgres-journal in the state directory is a directory that lapwing may write, on a disk with room and "+
			"without faults; lapwing postgres status")
	f("journal fails, changes are lost", well(unwritten(time.Minute, journal.Usage{Dropping: true})), false, 2, "are lost now")
	f("journal drops changes without an error", well(journal.Usage{Dropping: true}), false, 0)
	f("both fail", failed(time.Hour, unwritten(time.Hour, journal.Usage{Owed: gb})), true, 1,
		"many. PostgreSQL has failed for 60 min: connection refused. It is 60 min behind",
		"faults; check that db:5432/x runs")
	f("disk with room", well(journal.Usage{Owed: gb, Free: 16e8, MinFree: gb}), true, 0)
}
