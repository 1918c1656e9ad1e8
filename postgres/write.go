package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// write commits the batch: its rows and the positions behind it. It returns errMoved if the database is at other
// positions, or a newer owner of a partition has written there.
func (s *session) write(ctx context.Context) error {
	begin := time.Now()
	if err := s.ensure(ctx); err != nil {
		return err
	}
	err := inTransaction(ctx, s.conn, func(tx pgx.Tx) error {
		if err := s.fence(ctx, tx); err != nil {
			return err
		}
		if err := s.noteGaps(ctx, tx); err != nil {
			return err
		}
		if err := s.batch.writeRows(ctx, tx); err != nil {
			return err
		}
		return s.move(ctx, tx)
	})
	if err != nil {
		return err
	}
	s.wrote(begin)
	return nil
}

// ensure creates the partitions of tables that the batch's rows go to.
func (s *session) ensure(ctx context.Context) error {
	for day := range s.batch.days {
		for _, t := range []*spans{&s.events, &s.changes} {
			if err := t.ensure(ctx, s.conn, time.Unix(day*24*60*60, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *batch) writeRows(ctx context.Context, tx pgx.Tx) error {
	if err := writeLatest(ctx, tx, b.latest); err != nil {
		return err
	}
	if err := b.events.copyTo(ctx, tx, "lapwing_data.event", eventColumns); err != nil {
		return err
	}
	return b.changes.copyTo(ctx, tx, "lapwing_data.state_change", changeColumns)
}

// wrote notes that the batch is committed.
func (s *session) wrote(begin time.Time) {
	b, m := &s.batch, &s.p.metrics
	now := time.Now()
	for i := range b.to {
		if s.writes(i) && b.to[i] > b.from[i] {
			s.has[i], s.fresh[i] = b.to[i], false
		}
	}
	s.moved = now
	upserts := 0
	for i := range b.latest {
		switch l := &b.latest[i]; {
		case l.deleted:
			s.pairs[l.pair] = knownPair
		case l.changed:
			s.pairs[l.pair] = knownPair | knownLatest
			upserts++
		default:
			s.pairs[l.pair] |= knownPair
		}
	}
	m.seconds.Observe(now.Sub(begin).Seconds())
	for _, received := range b.received {
		m.lag.Observe(max(0, float64(now.UnixMilli()-received)/1000))
	}
	m.events.Add(float64(b.count))
	m.rows.WithLabelValues(tableEvent).Add(float64(b.events.n))
	m.rows.WithLabelValues(tableChange).Add(float64(b.changes.n))
	m.rows.WithLabelValues(tableLatest).Add(float64(upserts))
	for _, g := range b.gaps {
		if g.changes > 0 {
			continue
		}
		s.resync[g.partition], s.lack[g.partition] = true, lack{}
		m.gaps.Inc()
		s.p.log.Warn("changes are missing in PostgreSQL", "reason", g.reason, "partition", g.partition, "from", g.from, "to", g.to)
	}
	s.p.mu.Lock()
	s.p.status.Gaps += len(b.gaps)
	s.p.mu.Unlock()
}

// fence locks the positions of the batch's partitions until the transaction ends, and checks that they are where the
// batch begins. A writer whose partition has a newer owner is stopped here, however late it is.
func (s *session) fence(ctx context.Context, tx pgx.Tx) error {
	b := &s.batch
	var moving []int
	for i := range b.to {
		if !s.writes(i) || b.to[i] <= b.from[i] {
			continue
		}
		moving = append(moving, i)
		if s.fresh[i] {
			if err := s.beginPosition(ctx, tx, i); err != nil {
				return fmt.Errorf("begin the position of partition %d: %w", i, err)
			}
		}
	}
	found, err := tx.Query(ctx, `SELECT partition, stream, seq, roster FROM lapwing_data.position WHERE partition = ANY($1)
		ORDER BY partition FOR UPDATE`, moving)
	if err != nil {
		return fmt.Errorf("lock positions: %w", err)
	}
	defer found.Close()
	n := 0
	for ; found.Next(); n++ {
		var partition int
		var stream, seq, roster int64
		if err := found.Scan(&partition, &stream, &seq, &roster); err != nil {
			return fmt.Errorf("lock positions: %w", err)
		}
		if uint64(stream) != s.p.streams[partition] || uint64(seq) != b.from[partition] || uint64(roster) > s.rosters[partition] {
			return fmt.Errorf("partition %d is at message %d by roster %d: %w", partition, seq, roster, errMoved)
		}
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("lock positions: %w", err)
	}
	if n != len(moving) {
		return fmt.Errorf("%d of %d positions exist: %w", n, len(moving), errMoved)
	}
	return nil
}

// beginPosition adds the position of a partition, or replaces that of another log. Another cluster may have written there
// since it was read.
func (s *session) beginPosition(ctx context.Context, tx pgx.Tx, partition int) error {
	tag, err := tx.Exec(ctx, `INSERT INTO lapwing_data.position AS p (partition, stream, seq, roster, writer, written)
		VALUES ($1, $2, 0, 0, $3, clock_timestamp()) ON CONFLICT (partition) DO NOTHING`, partition, int64(s.p.streams[partition]),
		s.p.opts.Member)
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	tag, err = tx.Exec(ctx, `UPDATE lapwing_data.position SET stream = $2, seq = 0, roster = 0, complete = NULL, copied = received
		WHERE partition = $1 AND stream <> $2 AND written < clock_timestamp() - make_interval(secs => $3)`, partition,
		int64(s.p.streams[partition]), foreign.Seconds())
	if err != nil || tag.RowsAffected() == 0 {
		return err // fence refuses the position
	}
	_, err = tx.Exec(ctx, "UPDATE lapwing_data.latest SET seq = 0 WHERE partition = $1", partition) // messages have other numbers
	return err
}

// move writes the positions behind the batch.
func (s *session) move(ctx context.Context, tx pgx.Tx) error {
	b := &s.batch
	var partitions, seqs, rosters []int64
	var received []*time.Time
	var helps []bool
	for i := range b.to {
		if s.writes(i) && b.to[i] > b.from[i] {
			partitions, seqs, rosters = append(partitions, int64(i)), append(seqs, int64(b.to[i])), append(rosters, int64(s.rosters[i]))
			received, helps = append(received, instant(b.newest[i])), append(helps, s.helps[i])
		}
	}
	_, err := tx.Exec(ctx, `UPDATE lapwing_data.position p SET seq = n.seq, roster = n.roster, writer = $4,
		received = coalesce(n.received, p.received), written = clock_timestamp(), wanted = CASE WHEN n.helps THEN p.wanted END
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::timestamptz[], $6::bool[])
			AS n(partition, seq, roster, received, helps)
		WHERE p.partition = n.partition`,
		partitions, seqs, rosters, s.p.opts.Member, received, helps)
	if err != nil {
		return fmt.Errorf("move positions: %w", err)
	}
	return nil
}

func (s *session) noteGaps(ctx context.Context, tx pgx.Tx) error {
	for _, g := range s.batch.gaps {
		_, err := tx.Exec(ctx, `INSERT INTO lapwing_data.gap (partition, stream, from_seq, to_seq, since, until, writer, changes, reason)
			SELECT $1, $2, $3, $4, coalesce($5, (SELECT received FROM lapwing_data.position WHERE partition = $1)), $6, $7,
				nullif($8::int, 0), $9`,
			g.partition, int64(s.p.streams[g.partition]), int64(g.from), int64(g.to), instant(g.since), instant(g.until), s.p.opts.Member,
			g.changes, text(g.reason))
		if err != nil {
			return fmt.Errorf("note a gap of partition %d: %w", g.partition, err)
		}
		if g.changes > 0 {
			continue
		}
		// The states of all pairs are to be written anew, by this session or another.
		if _, err := tx.Exec(ctx, "UPDATE lapwing_data.position SET due = true WHERE partition = $1", g.partition); err != nil {
			return fmt.Errorf("note a gap of partition %d: %w", g.partition, err)
		}
	}
	return nil
}

// columns are the rows of latest as arrays.
type columns struct {
	pair, seq, occurrences, watermark []int64
	received, executed, lastOK        []*time.Time
	status, flags, partition          []int32
	output                            []string
}

func (c *columns) add(l *latest) {
	c.pair, c.seq = append(c.pair, l.pair), append(c.seq, int64(l.seq))
	c.occurrences, c.watermark = append(c.occurrences, l.occurrences), append(c.watermark, l.watermark)
	c.received, c.executed = append(c.received, instant(l.received)), append(c.executed, instant(l.executed))
	c.lastOK = append(c.lastOK, instant(l.lastOK))
	c.status, c.flags = append(c.status, l.status), append(c.flags, l.flags)
	c.partition, c.output = append(c.partition, int32(l.partition)), append(c.output, l.output)
}

// instant returns a time in Unix milliseconds; nil for 0.
func instant(millis int64) *time.Time {
	if millis == 0 {
		return nil
	}
	t := time.UnixMilli(min(max(millis, firstTime), lastTime))
	return &t
}

func (c *columns) exec(ctx context.Context, tx pgx.Tx, sql string) (int64, error) {
	tag, err := tx.Exec(ctx, sql, c.pair, c.seq, c.received, c.executed, c.lastOK, c.occurrences, c.watermark, c.status, c.flags,
		c.partition, c.output)
	return tag.RowsAffected(), err
}

const unnestLatest = `unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::bigint[],
	$7::bigint[], $8::int[], $9::int[], $10::int[], $11::text[])
	AS n(pair_id, seq, received, executed, last_ok, occurrences, watermark, status, flags, partition, output)`

// Rows that exist are updated without ON CONFLICT, which would lock each row first and log that.
const updateLatest = `UPDATE lapwing_data.latest l SET seq = n.seq, received = n.received, executed = n.executed,
	last_ok = n.last_ok, occurrences = n.occurrences, watermark = n.watermark, status = n.status, flags = n.flags, output = n.output
	FROM ` + unnestLatest + ` WHERE l.pair_id = n.pair_id AND l.seq <= n.seq`

const insertLatest = `INSERT INTO lapwing_data.latest AS l (pair_id, seq, received, executed, last_ok, occurrences, watermark,
	status, flags, partition, output) SELECT * FROM ` + unnestLatest + `
	ON CONFLICT (pair_id) DO UPDATE SET seq = excluded.seq, received = excluded.received, executed = excluded.executed,
	last_ok = excluded.last_ok, occurrences = excluded.occurrences, watermark = excluded.watermark, status = excluded.status,
	flags = excluded.flags, output = excluded.output WHERE l.seq <= excluded.seq`

// writeLatest writes pairs and their latest events.
func writeLatest(ctx context.Context, tx pgx.Tx, all []latest) error {
	var known, unknown columns
	var ids, deleted []int64
	var namespaces, entities, checks []string
	for i := range all {
		l := &all[i]
		if l.known&knownPair == 0 {
			ids, namespaces = append(ids, l.pair), append(namespaces, l.namespace)
			entities, checks = append(entities, l.entity), append(checks, l.check)
		}
		switch {
		case l.deleted:
			deleted = append(deleted, l.pair)
		case !l.changed:
		case l.known&knownLatest != 0:
			known.add(l)
		default:
			unknown.add(l)
		}
	}
	if len(ids) > 0 {
		_, err := tx.Exec(ctx, `INSERT INTO lapwing_data.pair (id, namespace, entity, "check")
			SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) ON CONFLICT DO NOTHING`, ids, namespaces, entities, checks)
		if err != nil {
			return fmt.Errorf("write %d pairs: %w", len(ids), err)
		}
	}
	if len(deleted) > 0 {
		if _, err := tx.Exec(ctx, "DELETE FROM lapwing_data.latest WHERE pair_id = ANY($1)", deleted); err != nil {
			return fmt.Errorf("delete %d latest events: %w", len(deleted), err)
		}
	}
	if len(unknown.pair) > 0 {
		if _, err := unknown.exec(ctx, tx, insertLatest); err != nil {
			return fmt.Errorf("write %d latest events: %w", len(unknown.pair), err)
		}
	}
	if len(known.pair) == 0 {
		return nil
	}
	// Each row is found by its key: a plan that reads the whole table is slower for every size of a batch.
	_, err := tx.Exec(ctx, "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off; "+
		"SET LOCAL jit = off", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return fmt.Errorf("set the plan of an update: %w", err)
	}
	if _, err := known.exec(ctx, tx, updateLatest); err != nil {
		return fmt.Errorf("update %d latest events: %w", len(known.pair), err)
	}
	return nil
}

// resynchronise writes the latest events and present states of all pairs for partitions that are new in the database, or
// have a gap: events that were skipped may have been the latest of their pairs, and a pair may not change for months.
// It does one partition at a time, so that new events are not held up for long. more says that there are others.
func (s *session) resynchronise(ctx context.Context) (more bool, err error) {
	done := false
	for i := range s.resync {
		switch {
		case !s.resync[i] || !s.owned[i] || s.fresh[i]:
			continue
		case done:
			return true, nil
		}
		if err := s.resynchroniseOne(ctx, i); err != nil {
			return false, fmt.Errorf("take the latest events of partition %d from the state: %w", i, err)
		}
		s.resync[i], done = false, true
	}
	return false, nil
}

// writeStates writes latest events, and their states at a time.
func (s *session) writeStates(ctx context.Context, part []latest, at time.Time) error {
	var states rows
	states.reset(changeCount)
	for i := range part {
		states.state(&part[i], at.UnixMilli())
	}
	return s.bounded(ctx, func(ctx context.Context) error {
		return inTransaction(ctx, s.conn, func(tx pgx.Tx) error {
			if err := writeLatest(ctx, tx, part); err != nil {
				return err
			}
			if err := states.copyTo(ctx, tx, "lapwing_data.state_change", changeColumns); err != nil {
				return err
			}
			var ids []int64
			for i := range part {
				if part[i].settled {
					ids = append(ids, part[i].pair)
				}
			}
			if _, err := tx.Exec(ctx, markNewStates, ids, time.UnixMilli(at.UnixMilli())); err != nil {
				return fmt.Errorf("mark the first states of checks: %w", err)
			}
			return nil
		})
	})
}

// markNewStates makes changes of the states at $2 that are the first of their pairs, or others than the newest before: after
// a gap. It is not for pairs with changes that the journal still has: those come with the flag.
var markNewStates = fmt.Sprintf(`UPDATE lapwing_data.state_change s SET flags = s.flags | %[1]d
	WHERE s.pair_id = ANY($1) AND s.received = $2 AND s.sub = %[2]d AND NOT EXISTS (
		SELECT FROM (SELECT status, flags FROM lapwing_data.state_change o WHERE o.pair_id = s.pair_id AND o.received < $2
			ORDER BY o.received DESC, o.seq DESC, o.sub DESC LIMIT 1) newest
		WHERE newest.status = s.status AND newest.flags & %[3]d = s.flags & %[3]d)`,
	journal.Changed, math.MaxInt32, journal.Deleted|journal.Silenced|journal.Flapping)

func (s *session) resynchroniseOne(ctx context.Context, partition int) error {
	const chunk = 2000
	live := map[int64]struct{}{}
	var part []latest
	now := time.Now()
	if err := s.bounded(ctx, func(ctx context.Context) error { return s.changes.ensure(ctx, s.conn, now) }); err != nil {
		return err
	}
	flush := func() error {
		begin := time.Now()
		err := s.writeStates(ctx, part, now)
		if isRefusal(err) { // one of them is refused, or more: the others are written without
			for i := range part {
				if err = s.writeStates(ctx, part[i:i+1], now); isRefusal(err) {
					s.p.rare.Error("PostgreSQL refuses the latest event of a check", "state", "namespace", part[i].namespace,
						"entity", part[i].entity, "check", part[i].check, "err", err)
					err = nil
				}
				if err != nil {
					return err
				}
			}
		}
		part = part[:0]
		if err != nil {
			return err
		}
		return pause(ctx, s.share(time.Since(begin)))
	}
	begin, _ := s.p.opts.State.Folded(partition)
	for pair := range s.p.opts.State.PairsIn(partition) {
		ev, err := s.p.opts.State.Event(pair.Namespace, pair.Entity, pair.Check)
		if errors.Is(err, state.ErrNotFound) || err == nil && ev.Check == nil {
			continue
		}
		if err != nil { // it would keep all other events from PostgreSQL
			s.p.rare.Error("PostgreSQL gets a latest event without its content, which cannot be read", "latest",
				"entity", pair.Entity, "check", pair.Check, "err", err)
			ev = &resource.Event{Check: &resource.Check{Status: pair.Status, Executed: pair.Executed}}
		}
		l := latest{
			pair:    s.batch.ids.id([]byte(pair.Namespace), []byte(pair.Entity), []byte(pair.Check)),
			changed: true, namespace: text(pair.Namespace), entity: text(pair.Entity), check: text(pair.Check),
			seq: pair.Seq, partition: partition, received: pair.Received, occurrences: ev.Check.Occurrences,
			watermark: ev.Check.OccurrencesWatermark, status: int32(ev.Check.Status),
			output: text(beginning([]byte(ev.Check.Output), shortOutput)),
		}
		if ev.Check.Executed != 0 {
			l.executed = seconds(ev.Check.Executed)
		}
		if ev.Check.LastOK != 0 {
			l.lastOK = seconds(ev.Check.LastOK)
		}
		if len(ev.Check.Silenced) > 0 {
			l.flags |= journal.Silenced
		}
		if ev.Check.State == "flapping" {
			l.flags |= journal.Flapping
		}
		if _, same := live[l.pair]; same { // two pairs with one id: PostgreSQL takes one row of it in a statement
			continue
		}
		changes, _, err := s.p.opts.State.History(pair.Namespace, pair.Entity, pair.Check, 0, 1)
		if err != nil {
			return err
		}
		l.settled = len(changes) == 0 || changes[0].Seq() <= s.has[partition]
		if len(changes) > 0 && changes[0].Missing && uint32(l.status) == changes[0].Status {
			l.flags |= journal.Missing
		}
		live[l.pair] = struct{}{}
		if part = append(part, l); len(part) == chunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return s.bounded(ctx, func(ctx context.Context) error {
		if err := s.removeGone(ctx, partition, begin, live); err != nil {
			return err
		}
		_, err := s.conn.Exec(ctx, `UPDATE lapwing_data.position SET complete = coalesce(complete, clock_timestamp()), due = false
			WHERE partition = $1`, partition)
		return err
	})
}

// state adds the state of a pair behind its latest event. It comes behind all changes in the same message.
func (r *rows) state(l *latest, at int64) {
	r.begin()
	r.millis(at)
	r.millis(l.executed)
	r.int8(l.pair)
	r.int8(int64(l.seq))
	r.int4(math.MaxInt32)
	r.int4(int32(l.partition))
	r.int4(l.status)
	r.int4(l.flags)
	r.text([]byte(l.output))
}

// removeGone removes the latest events of pairs that the state does not have. Rows of messages behind upTo may be of
// pairs that came later.
func (s *session) removeGone(ctx context.Context, partition int, upTo uint64, live map[int64]struct{}) error {
	found, err := s.conn.Query(ctx, "SELECT pair_id FROM lapwing_data.latest WHERE partition = $1 AND seq <= $2", partition, int64(upTo))
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(found, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	var gone []int64
	for _, id := range ids {
		if _, ok := live[id]; !ok {
			gone = append(gone, id)
			s.pairs[id] &^= knownLatest
		}
	}
	if len(gone) > 0 {
		_, err = s.conn.Exec(ctx, `WITH gone AS (DELETE FROM lapwing_data.latest WHERE pair_id = ANY($1) AND seq <= $2 RETURNING pair_id)
			INSERT INTO lapwing_data.state_change (received, pair_id, seq, sub, partition, status, flags, output)
			SELECT clock_timestamp(), pair_id, $2, $3::int, $4::int, 0, $5::int, '' FROM gone`,
			gone, int64(upTo), math.MaxInt32, partition, journal.Deleted|journal.Changed)
	}
	return err
}
