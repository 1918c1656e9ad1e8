package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// ReaderOptions configures a Reader.
type ReaderOptions struct {
	// Streams are the ids of the log's partitions. Required.
	Streams []uint64
	// Folded returns the newest folded message of a partition. Required.
	Folded func(partition int) uint64
	Logger *slog.Logger
}

// Reader reads the changes of checks' states, for reports and for the histories of single checks. It implements
// report.Source. It connects when it is first asked for something; only its callers wait for PostgreSQL.
type Reader struct {
	opts ReaderOptions
	rare *rarelog.Log

	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	closing sync.WaitGroup // pools that wait for their last reader

	mu       sync.Mutex // guards the fields below
	settings Settings
	pool     *pgxpool.Pool // nil if there is none yet
}

const (
	// defaultPoolSize is the pool's size if the settings have none.
	defaultPoolSize = 4
	// answerTime bounds a connection attempt, and how long PostgreSQL may take to say how far it is.
	answerTime = 2 * time.Second
	// readTime bounds a read if the caller's context does not.
	readTime = 10 * time.Minute
	// mayLag is how far PostgreSQL may be behind for a report that ends now.
	mayLag = time.Minute
	// clockSkew is how far backends' clocks may differ: a change before Since that is newer in the log may have a time that is
	// so much older.
	clockSkew = time.Hour
)

// NewReader returns a Reader without settings.
func NewReader(opts ReaderOptions) (*Reader, error) {
	if len(opts.Streams) == 0 || opts.Folded == nil {
		return nil, errors.New("postgres: streams and folded are required")
	}
	r := &Reader{opts: opts, rare: rarelog.New(cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)).With("component", "postgres"))}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Configure replaces the settings. Reads that are under way go on with the old ones. If the DSN cannot be used, reads
// fail until it can.
func (r *Reader) Configure(s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s != r.settings {
		r.settings = s
		r.closePool()
	}
	return nil
}

// closePool closes the pool when its last reader has ended. The caller holds mu.
func (r *Reader) closePool() {
	if r.pool != nil {
		r.closing.Go(r.pool.Close)
		r.pool = nil
	}
}

// Stop ends all reads and closes the connections.
func (r *Reader) Stop() error {
	r.mu.Lock()
	r.cancel()
	r.closePool()
	r.mu.Unlock()
	r.closing.Wait()
	return nil
}

// Configured reports whether there is a database to read.
func (r *Reader) Configured() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings.DSN != ""
}

// open returns the pool of the present settings.
func (r *Reader) open() (*pgxpool.Pool, Settings, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.settings
	switch {
	case s.DSN == "":
		return nil, s, ErrNotConfigured
	case r.ctx.Err() != nil:
		return nil, s, errors.New("the reader of PostgreSQL is stopped")
	case r.pool != nil:
		return r.pool, s, nil
	}
	config, err := resource.ParseDSN(s.DSN, pgxpool.ParseConfig)
	if err != nil {
		return nil, s, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	adapt(config.ConnConfig)
	config.ConnConfig.ConnectTimeout = answerTime
	config.MinConns, config.MaxConns = 0, int32(min(cmp.Or(s.PoolSize, defaultPoolSize), math.MaxInt32))
	config.MaxConnLifetime = cmp.Or(s.ConnLifetime, 100*365*24*time.Hour) // 0 would be the pool's own default
	if r.pool, err = pgxpool.NewWithConfig(r.ctx, config); err != nil {
		return nil, s, fmt.Errorf("make a pool of connections to PostgreSQL: %w", err)
	}
	return r.pool, s, nil
}

// read calls do in a transaction that can only read, and whose statements end with the context.
func (r *Reader) read(ctx context.Context, workMemory string, do func(context.Context, pgx.Tx) error) error {
	pool, _, err := r.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		end, _ := ctx.Deadline()
		set := "SET LOCAL jit = off; SET LOCAL statement_timeout = " + strconv.FormatInt(max(time.Until(end).Milliseconds(), 1), 10)
		if workMemory != "" {
			set += "; SET LOCAL work_mem = '" + workMemory + "'"
		}
		if _, err := tx.Exec(ctx, set, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("bound the time of a transaction: %w", err)
		}
		return do(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("read from PostgreSQL: %w", err)
	}
	return nil
}

// Covers says which changes PostgreSQL has of a time. It answers within seconds.
func (r *Reader) Covers(ctx context.Context, since, until time.Time) report.Coverage {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var c report.Coverage
	err := r.read(ctx, "", func(ctx context.Context, tx pgx.Tx) (err error) {
		if c, err = r.positions(ctx, tx, until); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `SELECT count(*) FROM lapwing_data.gap
			WHERE coalesce(since, '-infinity') < $2 AND coalesce(until, noticed) > $1`, since, until).Scan(&c.Gaps)
		if err != nil {
			return fmt.Errorf("read gaps: %w", err)
		}
		return nil
	})
	if err != nil {
		r.rare.Warn("reports do without PostgreSQL", "covers", "err", err)
		return report.Coverage{Reason: "PostgreSQL does not answer, or has no tables of this backend's release"}
	}
	return c
}

// Begin returns the time from which all changes are in PostgreSQL.
func (r *Reader) Begin(ctx context.Context, _ string) (begin time.Time, err error) {
	err = r.read(ctx, "", func(ctx context.Context, tx pgx.Tx) error {
		c, err := r.positions(ctx, tx, time.Time{})
		if err == nil && c.Reason != "" {
			err = errors.New(c.Reason)
		}
		begin = c.Begin
		return err
	})
	return begin, err
}

// positions finds how far each partition is written, and whether that is enough for a time that ends with until. In a
// cluster each member writes its partitions, but each has folded all of them.
func (r *Reader) positions(ctx context.Context, tx pgx.Tx, until time.Time) (c report.Coverage, err error) {
	found, err := tx.Query(ctx, "SELECT partition, stream, seq, received, complete, due FROM lapwing_data.position")
	if err != nil {
		return c, fmt.Errorf("read positions: %w", err)
	}
	defer found.Close()
	r.mu.Lock()
	keep := r.settings.Changes
	r.mu.Unlock()
	now := time.Now()
	if keep > 0 {
		c.Begin = now.Add(-keep)
	}
	known := make([]bool, len(r.opts.Streams))
	for found.Next() {
		var partition int
		var stream, seq int64
		var received, complete *time.Time
		var due bool
		if err := found.Scan(&partition, &stream, &seq, &received, &complete, &due); err != nil {
			return c, fmt.Errorf("read positions: %w", err)
		}
		if partition >= len(known) || uint64(stream) != r.opts.Streams[partition] {
			continue
		}
		known[partition] = true
		switch {
		case complete == nil || due:
			c.Reason = "PostgreSQL does not have the states of all checks yet"
		case complete.After(c.Begin):
			c.Begin = *complete
		}
		current := uint64(seq) >= r.opts.Folded(partition) || received != nil && (now.Sub(*received) < mayLag || until.Before(*received))
		if !current {
			c.Reason = fmt.Sprintf("PostgreSQL lags by more than %.0f s", mayLag.Seconds())
		}
	}
	if err := found.Err(); err != nil {
		return c, fmt.Errorf("read positions: %w", err)
	}
	for i, is := range known {
		if !is && r.opts.Folded(i) > 0 {
			c.Reason = "PostgreSQL does not have all of this event log yet"
		}
	}
	return c, nil
}

// selectHistories has a row with the names of each pair of a namespace, then the newest change before $2, then the changes
// before $3, in the order of the log. Sorting is cheaper than reading the changes of each pair from the index, and so are
// rows of their own for the names. The change before $2 comes from the index state_change_pair: with a year of a million
// changes of 20,000 pairs, a month took 0.2 s, and 1.7 s with one pass (DISTINCT ON) over all that is older.
var selectHistories = fmt.Sprintf(`WITH wanted AS MATERIALIZED (SELECT id, entity, "check" FROM lapwing_data.pair WHERE namespace = $1)
	SELECT pair_id, received, seq, sub, status, flags, entity, "check" FROM (
		SELECT id AS pair_id, NULL::timestamptz AS received, -1 AS partition, -1::bigint AS seq, -1 AS sub, 0 AS status, 0 AS flags,
			entity, "check" FROM wanted
		UNION ALL
		SELECT id, b.received, b.partition, b.seq, b.sub, b.status, b.flags, NULL, NULL FROM wanted
			CROSS JOIN LATERAL (SELECT received FROM lapwing_data.state_change s
				WHERE s.pair_id = id AND s.received < $2 ORDER BY s.received DESC LIMIT 1) newest
			CROSS JOIN LATERAL (SELECT * FROM lapwing_data.state_change s
				WHERE s.pair_id = id AND s.received < $2 AND s.received >= newest.received - interval '%d seconds'
				ORDER BY s.partition DESC, s.seq DESC, s.sub DESC LIMIT 1) b
		UNION ALL
		SELECT s.pair_id, s.received, s.partition, s.seq, s.sub, s.status, s.flags, NULL, NULL FROM lapwing_data.state_change s
			WHERE s.received >= $2 AND s.received < $3 AND s.pair_id IN (SELECT id FROM wanted)
	) AS every ORDER BY pair_id, partition, seq, sub`, int(clockSkew.Seconds()))

// sortMemory is PostgreSQL's memory for the sort of a report's changes. What does not fit is sorted on its disk.
const sortMemory = "64MB"

// Changes yields the histories in a range. PostgreSQL sorts them, and they are read row by row.
func (r *Reader) Changes(
	ctx context.Context, in report.Range, keep func(namespace, entity, check string) bool,
) iter.Seq2[report.History, error] {
	return func(yield func(report.History, error) bool) {
		end := false
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		err := r.read(ctx, sortMemory, func(ctx context.Context, tx pgx.Tx) error {
			found, err := tx.Query(ctx, selectHistories, in.Namespace, in.Since, in.Until)
			if err != nil {
				return fmt.Errorf("select changes: %w", err)
			}
			defer found.Close()
			h := report.History{Namespace: in.Namespace}
			wanted := false
			emit := func() bool {
				end = wanted && len(h.Changes) > 0 && !yield(h, nil)
				h.Changes = h.Changes[:0]
				return !end
			}
			for found.Next() {
				row := found.RawValues() // scanning each would take longer than PostgreSQL
				if row[1] == nil {
					if !emit() {
						cancel() // or the rest would be read, too
						return nil
					}
					h.Entity, h.Check = string(row[6]), string(row[7])
					wanted = keep(h.Namespace, h.Entity, h.Check)
				} else if wanted {
					h.Changes = append(h.Changes, readChange(row[1], row[4], row[5]))
				}
			}
			if err := found.Err(); err != nil {
				return fmt.Errorf("select changes: %w", err)
			}
			emit()
			return nil
		})
		if err != nil && !end {
			yield(report.History{}, err)
		}
	}
}

// readChange reads columns in PostgreSQL's binary format.
func readChange(received, status, flags []byte) report.Change {
	f := binary.BigEndian.Uint32(flags)
	c := report.Change{Time: time.UnixMilli(int64(binary.BigEndian.Uint64(received))/1000 + epoch2000), Deleted: f&journal.Deleted != 0}
	if !c.Deleted {
		c.Status = binary.BigEndian.Uint32(status)
		c.Flapping, c.Silenced, c.Missing = f&journal.Flapping != 0, f&journal.Silenced != 0, f&journal.Missing != 0
	}
	return c
}

// History returns the changes of a check in a time, newest first: at most limit, and only those before the place that
// an earlier call returned as next ("" for the newest). next is "" at the end.
func (r *Reader) History(
	ctx context.Context, namespace, entity, check string, since, until time.Time, before string, limit int,
) (changes []state.StateChange, next string, err error) {
	seq, sub := int64(math.MaxInt64), int64(math.MaxInt32)
	if before != "" {
		if seq, sub, err = parsePlace(before); err != nil {
			return nil, "", err
		}
	}
	err = r.read(ctx, "", func(ctx context.Context, tx pgx.Tx) error {
		found, err := tx.Query(ctx, `SELECT received, executed, status, flags, output, seq, sub FROM lapwing_data.state_change
			WHERE pair_id = (SELECT id FROM lapwing_data.pair WHERE namespace = $6 AND entity = $7 AND "check" = $8)
			AND received >= $1 AND received <= $2 AND (seq, sub) < ($3, $4) AND flags & 4 <> 0
			ORDER BY seq DESC, sub DESC LIMIT $5`,
			since, until, seq, sub, limit+1, text(namespace), text(entity), text(check))
		if err != nil {
			return fmt.Errorf("select the history of %s/%s: %w", entity, check, err)
		}
		defer found.Close()
		for found.Next() {
			if len(changes) == limit {
				next = fmt.Sprintf("%d-%d", seq, sub)
				break
			}
			var c state.StateChange
			var executed *time.Time
			var status, flags int32
			if err := found.Scan(&c.Time, &executed, &status, &flags, &c.Output, &seq, &sub); err != nil {
				return fmt.Errorf("read the history of %s/%s: %w", entity, check, err)
			}
			if c.Deleted = flags&journal.Deleted != 0; !c.Deleted {
				c.Status, c.Flapping = uint32(status), flags&journal.Flapping != 0
				c.Silenced, c.Missing = flags&journal.Silenced != 0, flags&journal.Missing != 0
			}
			if executed != nil {
				c.Executed = executed.Unix()
			}
			changes = append(changes, c)
		}
		return found.Err()
	})
	return changes, next, err
}

func parsePlace(text string) (seq, sub int64, err error) {
	first, second, _ := strings.Cut(text, "-")
	if seq, err = strconv.ParseInt(first, 10, 64); err == nil {
		sub, err = strconv.ParseInt(second, 10, 32)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %q", report.ErrPlace, text)
	}
	return seq, sub, nil
}
