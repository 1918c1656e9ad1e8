package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The tables that get rows all the time.
const (
	tableLatest       = "latest"
	tableEvent        = "event"
	tableChange       = "state_change"
	tableNotification = "notification"
	tableDefinition   = "definition"
)

// spans divides a table into partitions by time.
type spans struct {
	table   string
	monthly bool
	keep    time.Duration // 0: for ever
	exist   map[int64]struct{}
}

// start returns when the partition begins that has a time.
func (s *spans) start(t time.Time) time.Time {
	t = t.UTC()
	if s.monthly {
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

func (s *spans) end(start time.Time) time.Time {
	if s.monthly {
		return start.AddDate(0, 1, 0)
	}
	return start.AddDate(0, 0, 1)
}

const spanFormat = "20060102"

func (s *spans) name(start time.Time) string { return s.table + "_" + start.Format(spanFormat) }

// cutoff is the time in Unix milliseconds before which rows are not kept.
func (s *spans) cutoff(now time.Time) int64 {
	if s.keep == 0 {
		return firstTime
	}
	return now.Add(-s.keep).UnixMilli()
}

// ensure creates the partition for a time. It locks out no reader: a table is created and then attached.
func (s *spans) ensure(ctx context.Context, conn *pgx.Conn, t time.Time) error {
	start := s.start(t)
	if _, ok := s.exist[start.Unix()]; ok {
		return nil
	}
	err := inTransaction(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		name, exists, err := s.find(ctx, conn, start)
		if err != nil || exists {
			return err
		}
		const day = "2006-01-02 15:04:05+00"
		_, err = tx.Exec(ctx, fmt.Sprintf(`CREATE TABLE lapwing_data.%[1]s (LIKE lapwing_data.%[2]s INCLUDING ALL EXCLUDING INDEXES);
			ALTER TABLE lapwing_data.%[2]s ATTACH PARTITION lapwing_data.%[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')`,
			name, s.table, start.Format(day), s.end(start).Format(day)), pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("create a partition of lapwing_data.%s: %w", s.table, err)
	}
	s.exist[start.Unix()] = struct{}{}
	return nil
}

// find reports whether the partition exists that begins at a time. If not, it returns a name for it: an administrator may
// have detached the table with the first name, and keep it.
func (s *spans) find(ctx context.Context, conn *pgx.Conn, start time.Time) (name string, exists bool, err error) {
	found, err := conn.Query(ctx, `SELECT c.relname::text, i.inhparent IS NOT NULL FROM pg_catalog.pg_class c
		LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid AND i.inhparent = ('lapwing_data.' || $2::text)::regclass
		WHERE c.relnamespace = 'lapwing_data'::regnamespace AND starts_with(c.relname, $1)`, s.name(start), s.table)
	if err != nil {
		return "", false, err
	}
	taken := map[string]bool{}
	var attached bool
	_, err = pgx.ForEachRow(found, []any{&name, &attached}, func() error {
		taken[name] = true
		exists = exists || attached
		return nil
	})
	name = s.name(start)
	for i := 1; taken[name]; i++ {
		name = fmt.Sprintf("%s_%d", s.name(start), i)
	}
	return name, exists, err
}

// startOf returns when a partition begins by its name, which find gave it.
func (s *spans) startOf(name string) (time.Time, error) {
	day, _, _ := strings.Cut(strings.TrimPrefix(name, s.table+"_"), "_")
	return time.Parse(spanFormat, day)
}

// carryStates copies the newest state of each pair in a partition to the begin of the next one: a check may not change
// for longer than changes are kept.
const carryStates = `INSERT INTO lapwing_data.state_change (received, executed, pair_id, seq, sub, partition, status, flags, output)
	SELECT $1::timestamptz, executed, pair_id, seq, sub, partition, status, flags & ~4, output FROM (
		SELECT DISTINCT ON (pair_id) * FROM lapwing_data.%s ORDER BY pair_id, partition DESC, seq DESC, sub DESC) newest
	WHERE flags & 1 = 0`

// expire drops the partitions whose rows are all older than the cutoff. Dropping one waits for readers of the table, and
// later readers wait for it: so it gives up after two seconds, and the next call tries again.
func (s *spans) expire(ctx context.Context, conn *pgx.Conn, now time.Time) (dropped []string, err error) {
	if s.keep == 0 {
		return nil, nil
	}
	found, err := conn.Query(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = ('lapwing_data.' || $1::text)::regclass ORDER BY 1`, s.table)
	if err != nil {
		return nil, fmt.Errorf("list the partitions of lapwing_data.%s: %w", s.table, err)
	}
	names, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the partitions of lapwing_data.%s: %w", s.table, err)
	}
	for _, name := range names {
		start, err := s.startOf(name)
		if err != nil || s.end(start).UnixMilli() > s.cutoff(now) {
			continue
		}
		if s.table == tableChange {
			if err := s.ensure(ctx, conn, s.end(start)); err != nil {
				return dropped, err
			}
		}
		err = inTransaction(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '100s'", pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return fmt.Errorf("bound the wait: %w", err)
			}
			if s.table == tableChange {
				if _, err := tx.Exec(ctx, fmt.Sprintf(carryStates, name), s.end(start)); err != nil {
					return fmt.Errorf("keep the newest states: %w", err)
				}
			}
			_, err = tx.Exec(ctx, "DROP TABLE lapwing_data."+name, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err != nil {
			return dropped, fmt.Errorf("drop the old partition lapwing_data.%s: %w", name, err)
		}
		delete(s.exist, start.Unix())
		dropped = append(dropped, name)
	}
	return dropped, nil
}
