package backend

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/postgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
)

// TestPostgresReports: an event is made when PostgreSQL has failed for minutes, again when it gets worse or is old, and
// is resolved when all members are known to be well.
func TestPostgresReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type event struct {
			status uint32
			output string
		}
		var (
			mu     sync.Mutex // guards what the looks read and write
			events []event
			refuse error
			acts   = true
		)
		one := api.PostgresStatus{Member: "b1", Status: postgres.Status{
			Configured: true, Connected: true, Journal: journal.Usage{MaxBytes: 1000},
		}}
		other := one
		other.Member = "b2"
		r := &postgresReports{
			status: func(context.Context) []api.PostgresStatus {
				mu.Lock()
				defer mu.Unlock()
				return []api.PostgresStatus{one, other}
			},
			report: func(_ context.Context, namespace, check string, status uint32, output string) error {
				mu.Lock()
				defer mu.Unlock()
				if namespace != "default" || check != "postgres" {
					t.Errorf("event of %s/%s", namespace, check)
				}
				if refuse == nil {
					events = append(events, event{status, output})
				}
				return refuse
			},
			open: func() uint32 {
				mu.Lock()
				defer mu.Unlock()
				if len(events) == 0 {
					return 0
				}
				return events[len(events)-1].status
			},
			acts: func() bool {
				mu.Lock()
				defer mu.Unlock()
				return acts
			},
			rare: rarelog.New(slog.New(slog.DiscardHandler)), cancel: func() {},
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Stop() }()
		mu.Lock()
		defer mu.Unlock() // before Stop
		// after waits, and expects further events.
		after := func(wait time.Duration, want ...uint32) {
			t.Helper()
			before := len(events)
			mu.Unlock()
			time.Sleep(wait)
			synctest.Wait()
			mu.Lock()
			var got []uint32
			for _, e := range events[before:] {
				got = append(got, e.status)
			}
			if len(got) != len(want) {
				t.Fatalf("events %v, want %v", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("events %v, want %v", got, want)
				}
			}
		}
		after(time.Hour)
		other.Connected, other.Error, other.Since = false, "refused", time.Now()
		after(4 * time.Minute)
		after(2*time.Minute, 1)
		if text := events[0].output; !strings.HasPrefix(text, "b2: PostgreSQL has failed for 5 min: refused") || strings.Contains(text, "b1") {
			t.Errorf("event: %q", text)
		}
		after(8 * time.Minute)
		after(2*time.Minute, 1) // new figures
		other.Journal.Owed = 990
		after(time.Minute, 2)
		acts = false
		other.Journal.Owed = 0
		after(time.Hour)
		acts, refuse = true, errors.New("the log is full")
		after(time.Hour)
		refuse = nil
		after(time.Minute, 1)
		other = api.PostgresStatus{Member: "b2", Unknown: "it did not answer"}
		after(time.Hour)
		other.Gone = true
		after(time.Minute, 0)
		after(time.Hour)
		one.Status = failing(time.Now().Add(-time.Hour))
		after(time.Minute, 1)
		one.Status = postgres.Status{}
		after(time.Minute, 0)
		if text := events[len(events)-1].output; text != "PostgreSQL is not configured any more" {
			t.Errorf("the last event: %q", text)
		}
	})
}

func failing(since time.Time) postgres.Status {
	return postgres.Status{Configured: true, Error: "refused", Since: since, Journal: journal.Usage{MaxBytes: 1000}}
}

// TestPostgresFails: /health says that PostgreSQL is not well while it, or the journal for it, is not written.
func TestPostgresFails(t *testing.T) {
	for name, c := range map[string]struct {
		connected bool
		journal   string
		want      string
	}{
		"well":               {true, "", ""},
		"PostgreSQL is away": {false, "", "PostgreSQL is not written to"},
		"the journal fails":  {true, "open /var/lib/lapwing: no space left on device", "the journal for PostgreSQL cannot be written"},
		"both fail":          {false, "no space left on device", "PostgreSQL is not written to"},
	} {
		got := postgresFails(&postgres.Status{Connected: c.connected, Journal: journal.Usage{Error: c.journal}})
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || strings.Contains(got, "device") {
			t.Errorf("%s: %q, want %q, without details", name, got, c.want)
		}
	}
}
