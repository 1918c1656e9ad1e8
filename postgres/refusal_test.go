package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
)

// TestRealRefusedChanges has PostgreSQL refuse some of many changes. The others are written, each once, and it is noted
// how many are missing.
func TestRealRefusedChanges(t *testing.T) {
	b := newBed(t)
	b.start(server(t).DSN(), nil)
	b.put(event("web", "before", 0, 1, "good"))
	b.settled()
	execute(t, b.dsn, `ALTER TABLE lapwing_data.event ADD CHECK (output <> 'bad');
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no such output'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON lapwing_data.latest FOR EACH ROW WHEN (NEW.output = 'worse') EXECUTE FUNCTION refuse()`)
	var all []eventlog.Record
	for i := range 100 {
		output := "good"
		switch i {
		case 17, 18, 90:
			output = "bad"
		case 50:
			output = "worse"
		}
		all = append(all, event("web", fmt.Sprint("c", i), 0, 1, output))
	}
	b.put(all...)
	b.settled()
	want(t, "events", query(t, b.dsn, `SELECT count(*), count(DISTINCT pair_id), count(*) FILTER (WHERE output = 'good')
		FROM lapwing_data.event`), "97|97|97")
	want(t, "latest events", query(t, b.dsn, `SELECT count(*) FROM lapwing_data.latest`), "97")
	want(t, "refused", query(t, b.dsn, `SELECT sum(changes),
		bool_and(messages = 1 AND reason LIKE 'PostgreSQL refused them: %' AND until IS NOT NULL) FROM lapwing.gaps`), "4|true")
	b.put(event("web", "c17", 0, 2, "good"))
	b.settled()
	want(t, "the check of a refused event", query(t, b.dsn, `SELECT occurrences FROM lapwing.current_events WHERE "check" = 'c17'`), "2")

	// The latest events of all checks are written anew: those that are refused hold up none of the others.
	execute(t, b.dsn, `UPDATE lapwing_data.position SET due = true; DELETE FROM lapwing_data.latest`)
	testbroker.Eventually(t, func() error {
		if got := query(t, b.dsn, `SELECT count(*), (SELECT count(*) FROM lapwing_data.position WHERE due)
			FROM lapwing_data.latest`); got != "100|0" {
			return fmt.Errorf("%s latest events and incomplete partitions, want 100|0", got)
		}
		return nil
	})
}

// TestRealAllIsRefused has a table that takes nothing: the writer waits, and the journal keeps the changes.
func TestRealAllIsRefused(t *testing.T) {
	b := newBed(t)
	b.start(server(t).DSN(), nil)
	b.put(event("web", "c", 0, 1, "0"))
	b.settled()
	execute(t, b.dsn, `ALTER TABLE lapwing_data.state_change ADD CONSTRAINT nothing CHECK (false) NOT VALID`)
	sent := 0
	for range 30 { // each changes the state
		var all []eventlog.Record
		for range 50 {
			sent++
			all = append(all, event("web", "c", uint32(sent%2), int64(sent), fmt.Sprint(sent)))
		}
		b.put(all...)
	}
	testbroker.Eventually(t, func() error {
		if s := b.writer.Status(); !strings.Contains(s.Error, "the writer waits") {
			return fmt.Errorf("the writer does not wait: %+v", s)
		}
		return nil
	})
	execute(t, b.dsn, `ALTER TABLE lapwing_data.state_change DROP CONSTRAINT nothing`)
	b.settled()
	want(t, "events and refused changes", query(t, b.dsn, `SELECT count(*) + (SELECT sum(changes) FROM lapwing.gaps) FROM lapwing_data.event`),
		fmt.Sprint(sent+1))
	want(t, "few are refused", query(t, b.dsn, `SELECT sum(changes) BETWEEN 1000 AND 1100 FROM lapwing.gaps`), "true")
	want(t, "latest event", query(t, b.dsn, `SELECT output FROM lapwing_data.latest`), fmt.Sprint(sent))
}

// TestRealLockedPartition has a reader lock a table that is to be dropped. Events are written meanwhile.
func TestRealLockedPartition(t *testing.T) {
	b := newBed(t)
	b.start(server(t).DSN(), nil)
	b.put(event("web", "c", 0, 1, "a"))
	b.settled()
	execute(t, b.dsn, `CREATE TABLE lapwing_data.state_change_20250101 PARTITION OF lapwing_data.state_change
		FOR VALUES FROM ('2025-01-01') TO ('2025-02-01')`)
	conn, err := connect(t.Context(), b.dsn, time.Minute)
	check(t, err)
	defer func() { check(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(t.Context(), "BEGIN; LOCK lapwing_data.state_change_20250101", pgx.QueryExecModeSimpleProtocol)
	check(t, err)
	check(t, b.writer.Configure(Settings{DSN: b.dsn, Changes: 24 * time.Hour}))
	b.put(event("web", "c", 1, 2, "b"))
	b.settled()
	_, err = conn.Exec(t.Context(), "COMMIT")
	check(t, err)
	b.put(event("web", "c", 0, 3, "c"))
	b.settled()
	want(t, "events", query(t, b.dsn, showEvents), "web|c|0|passing|1|a\nweb|c|1|failing|1|b\nweb|c|0|passing|1|c")
}

// TestRealDetachedPartition has an administrator detach and keep the table that gets rows.
func TestRealDetachedPartition(t *testing.T) {
	b := newBed(t)
	b.start(server(t).DSN(), nil)
	b.put(event("web", "c", 0, 1, "a"))
	b.settled()
	name := "event_" + time.Now().UTC().Format("20060102")
	detach := fmt.Sprintf(`ALTER TABLE lapwing_data.event DETACH PARTITION lapwing_data.%s`, name)
	execute(t, b.dsn, detach)
	b.put(event("web", "c", 0, 2, "b"))
	b.settled()
	execute(t, b.dsn, detach+"_1")
	b.put(event("web", "c", 0, 3, "c"))
	b.settled()
	for table, output := range map[string]string{name: "a", name + "_1": "b", "event": "c"} {
		want(t, table, query(t, b.dsn, "SELECT output FROM lapwing_data."+table), output)
	}
	want(t, "gaps", query(t, b.dsn, `SELECT count(*) FROM lapwing_data.gap`), "0")
}
