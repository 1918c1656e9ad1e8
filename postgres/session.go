package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// session is one connection of the writer.
type session struct {
	p        *Projection
	settings Settings
	conn     *pgx.Conn
	reader   *journal.Reader
	frame    journal.Frame // the newest one that was read
	batch    batch
	keeps    cutoffs // of the batch

	has     []uint64 // the newest written message of each partition
	at      []uint64 // the newest message that the reader has passed; more than has if no rows came with it
	owned   []bool
	rosters []uint64
	fresh   []bool  // the database has no position of the partition
	copied  []int64 // events that were received up to then are there from an earlier log; Unix milliseconds
	resync  []bool  // latest events are to be taken from the state
	lack    []lack  // of owned partitions
	wanted  []bool  // the owner of the partition lacks changes
	helps   []bool  // this session writes for the owner
	cannot  []bool  // it lacks them, too
	pairs   map[int64]known
	looked  time.Time // when the positions were read
	reread  bool      // the journal is to be read again from the positions on
	moved   time.Time // when they were last written
	expired time.Time // when old rows were last removed
	most    int       // changes of the next batch: fewer than usual after PostgreSQL refused one

	side       error // why definitions and notifications are not written; nil if they are
	sideFailed time.Time

	events, changes spans
	definitions     definitions
	notifications   notifications
}

// errMoved says that another backend has written a partition.
var errMoved = errors.New("another backend has written to PostgreSQL")

// errForeign says that two clusters have the same database.
var errForeign = errors.New("another cluster writes to this database: give each cluster its own. " +
	"If this cluster was just restored from a backup, it goes on after a minute")

const (
	lookEvery   = 2 * time.Second
	moveEvery   = 30 * time.Second
	sideEvery   = 30 * time.Second
	expireEvery = time.Hour
	// foreign is how long ago the position of an unknown log must have been written before it is replaced.
	foreign = time.Minute
)

// adapt sets how statements are sent: with parameters in binary and without names, so that PgBouncer may be in
// between, in transaction mode, too.
func adapt(config *pgx.ConnConfig) {
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "lapwing"
	}
}

// connect opens a connection.
func connect(ctx context.Context, dsn string, timeout time.Duration) (*pgx.Conn, error) {
	config, err := resource.ParseDSN(dsn, pgx.ParseConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	adapt(config)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return conn, nil
}

// session writes until something fails.
func (p *Projection) session(ctx context.Context, settings Settings) error {
	conn, err := connect(ctx, settings.DSN, p.opts.ConnectTimeout)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	n := len(p.streams)
	s := &session{
		p: p, settings: settings, conn: conn, reader: p.opts.Journal.Reader(), pairs: map[int64]known{},
		has: make([]uint64, n), at: make([]uint64, n), owned: make([]bool, n), rosters: make([]uint64, n),
		fresh: make([]bool, n), copied: make([]int64, n), resync: make([]bool, n), most: p.opts.BatchEvents,
		lack: make([]lack, n), wanted: make([]bool, n), helps: make([]bool, n), cannot: make([]bool, n),
		events:  spans{table: tableEvent, keep: settings.Events, exist: map[int64]struct{}{}},
		changes: spans{table: tableChange, monthly: true, keep: settings.Changes, exist: map[int64]struct{}{}},
	}
	s.notifications.spans = spans{
		table: tableNotification, monthly: true, keep: settings.Notifications, exist: map[int64]struct{}{},
	}
	defer s.reader.Close()
	p.mu.Lock()
	p.status.Server = conn.PgConn().Conn().RemoteAddr().String() + "/" + conn.Config().Database // of several, the one that answered
	p.mu.Unlock()
	if err := migrate(ctx, conn); err != nil {
		return err
	}
	err = s.bounded(ctx, func(ctx context.Context) (err error) {
		s.batch.ids.secret, err = readSecret(ctx, conn)
		return err
	})
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// bounded calls do with a bound on its time.
func (s *session) bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.p.opts.Timeout)
	defer cancel()
	return do(ctx)
}

// run reads the journal and writes it, one transaction after the other.
func (s *session) run(ctx context.Context) error {
	for {
		if err := s.look(ctx); err != nil {
			return err
		}
		begin, synced := time.Now(), s.p.opts.Journal.Current()
		written := s.reader.Written()
		full, err := s.collect()
		if err != nil {
			return err
		}
		copy(s.at, s.batch.to)
		if s.worthWriting() {
			err := s.bounded(ctx, s.write)
			refused := isRefusal(err)
			if refused {
				err = s.isolate(ctx, err)
			}
			switch {
			case errors.Is(err, errMoved):
				s.reread = true
				s.p.rare.Info("PostgreSQL is at another position: the journal is read again", "moved", "reason", err)
				if err := s.rest(ctx, 0, false, written); err != nil {
					return err
				}
				continue
			case err != nil:
				return err
			case refused:
				continue
			}
			s.most = min(2*s.most, s.p.opts.BatchEvents)
		}
		if err := s.ask(ctx); err != nil {
			return err
		}
		behind, err := s.resynchronise(ctx)
		if err != nil {
			return err
		}
		upTo := begin
		if synced.Before(begin) { // what is not in the journal yet is not written
			upTo = synced
		}
		if since, lack := s.lacksSince(); lack && since.Before(upTo) {
			upTo = since
		}
		if newest := s.batch.upTo(); full && newest > 0 {
			upTo = time.UnixMilli(newest)
		}
		more, err := s.beside(ctx)
		if err != nil {
			return err
		}
		s.p.wrote(upTo, s.has, s.side)
		if err := s.rest(ctx, time.Since(begin), full || more || behind, written); err != nil {
			return err
		}
	}
}

// beside writes definitions and notifications. What keeps them from being written holds up no events: unless the
// connection is gone, they are tried again later.
func (s *session) beside(ctx context.Context) (more bool, err error) {
	if time.Since(s.sideFailed) < sideEvery {
		return false, nil
	}
	more, err = s.define(ctx)
	unsent, notifyErr := s.notify(ctx)
	if err = errors.Join(err, notifyErr); err == nil {
		s.side = nil
		return more || unsent, nil
	}
	if s.conn.IsClosed() || ctx.Err() != nil {
		return false, err
	}
	s.side, s.sideFailed = err, time.Now()
	s.definitions = definitions{}
	s.notifications.known = false
	s.p.rare.Warn("PostgreSQL takes events, and no definitions or notifications", "beside", "err", err)
	return false, nil
}

// rest waits until the next transaction is due. A writer that has more to write leaves the processors to others in
// between.
func (s *session) rest(ctx context.Context, took time.Duration, more bool, written <-chan struct{}) error {
	wait := s.p.opts.Interval - took
	if more {
		return pause(ctx, s.share(took))
	}
	if err := pause(ctx, wait); err != nil {
		return err
	}
	timer := time.NewTimer(time.Second / 2) // so that the lag is known
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// share returns how long the writer leaves the processors to others after work that took some time.
func (s *session) share(took time.Duration) time.Duration {
	return min(took*time.Duration(100-s.p.opts.Share)/time.Duration(s.p.opts.Share), time.Second)
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look reads the positions now and then, and when this backend has got or lost partitions. Then the journal is read from
// the oldest position on. What is written is trimmed.
func (s *session) look(ctx context.Context) error {
	gained := false
	for i := range s.owned {
		roster, owns := s.p.opts.Owns(i)
		gained = gained || owns && (!s.owned[i] || roster != s.rosters[i])
		s.owned[i], s.rosters[i] = owns, roster
	}
	if !gained && !s.reread && !s.impatient() && time.Since(s.looked) < lookEvery {
		return nil
	}
	had, was := slices.Clone(s.has), slices.Clone(s.fresh)
	err := s.bounded(ctx, func(ctx context.Context) error { return s.positions(ctx) })
	if err != nil {
		return err
	}
	s.looked = time.Now()
	if s.p.opts.Definitions != nil {
		written, err := s.readPosition(ctx)
		if err != nil {
			return err
		}
		s.p.diary.forget(written.Add(-clockSkewOfMembers))
	}
	for i := range had {
		// The database went back: another server answers behind the same connection, to a pooler.
		s.reread = s.reread || s.owned[i] && s.lack[i].upTo == 0 && (had[i] != s.has[i] || was[i] != s.fresh[i])
	}
	answered, err := s.answered(ctx, had)
	if err != nil {
		return err
	}
	helping := s.help()
	s.reread = s.reread || answered || helping
	if gained || s.reread {
		s.reread = false
		clear(s.pairs)
		clear(s.events.exist)
		clear(s.changes.exist)
		clear(s.notifications.exist)
		s.notifications.known = false
		copy(s.at, s.has)
		from := make([]uint64, len(s.has))
		for i := range from {
			if from[i] = s.has[i]; !s.writes(i) {
				from[i] = math.MaxUint64
			}
		}
		if err := s.reader.Seek(from); err != nil {
			return err
		}
	}
	if err := s.p.opts.Journal.Trim(s.has); err != nil {
		s.p.rare.Error("the journal for PostgreSQL was not trimmed", "trim", "err", err)
	}
	return s.expire(ctx)
}

// positions reads how far each partition is written.
func (s *session) positions(ctx context.Context) error {
	found, err := s.conn.Query(ctx, `SELECT partition, stream, seq, complete IS NULL OR due, wanted IS NOT NULL, writer,
		extract(epoch FROM clock_timestamp() - written)::float8, copied, received FROM lapwing_data.position`)
	if err != nil {
		return fmt.Errorf("read positions: %w", err)
	}
	defer found.Close()
	for i := range s.has {
		s.fresh[i], s.wanted[i], s.copied[i] = true, false, math.MinInt64
	}
	for found.Next() {
		var partition int
		var stream, seq int64
		var writer string
		var age float64
		var due, wanted bool
		var copied, received *time.Time
		if err := found.Scan(&partition, &stream, &seq, &due, &wanted, &writer, &age, &copied, &received); err != nil {
			return fmt.Errorf("read positions: %w", err)
		}
		switch {
		case partition >= len(s.has):
		case uint64(stream) == s.p.streams[partition]:
			s.has[partition], s.fresh[partition], s.wanted[partition] = uint64(seq), false, wanted
			s.copied[partition] = newestMilli(copied)
			s.resync[partition] = s.resync[partition] || due
		case age < foreign.Seconds():
			return fmt.Errorf("partition %d was written %.0f s ago by %s: %w", partition, age, writer, errForeign)
		default: // beginPosition will replace it
			s.copied[partition] = newestMilli(received)
		}
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("read positions: %w", err)
	}
	for i, fresh := range s.fresh {
		if fresh {
			s.has[i], s.resync[i] = 0, s.owned[i]
		}
	}
	return nil
}

// collect reads the journal until the batch is full, or there is no more. A batch ends behind a whole message.
func (s *session) collect() (full bool, err error) {
	b := &s.batch
	b.reset(s.has, s.at)
	now := time.Now()
	s.keeps = cutoffs{events: s.events.cutoff(now), changes: s.changes.cutoff(now)}
	for !s.full() {
		var ok bool
		s.frame, ok, err = s.reader.Next()
		if err != nil || !ok {
			return false, err
		}
		f := &s.frame
		p := f.Partition
		if p >= len(b.to) || !s.writes(p) || f.Stream != s.p.streams[p] || f.Last <= b.to[p] {
			continue
		}
		if begins := s.fresh[p] && b.to[p] == 0; f.From > b.to[p] && !begins {
			if s.helps[p] {
				s.cannot[p] = true // the next look ends the help: the batch may have earlier changes of the partition
				continue
			}
			if s.lacks(p, f.From) {
				continue
			}
			b.gaps = append(b.gaps, gap{
				partition: p, from: b.to[p], to: f.From, since: b.newest[p], until: f.Oldest, reason: notInJournal,
			})
		}
		if !s.addFrame(f) {
			s.reader.Back()
			break
		}
	}
	return true, nil
}

// addFrame adds the changes of a frame to the batch until it is full; false if messages are left for the next batch.
func (s *session) addFrame(f *journal.Frame) (whole bool) {
	b, p := &s.batch, f.Partition
	begin := max(f.From, b.to[p])
	read := begin // the newest message of which something was read
	b.to[p] = f.Last
	for e, err := range f.Entries() {
		switch {
		case err != nil:
			s.p.rare.Error("the journal for PostgreSQL has a change that cannot be read", "entry", "err", err)
			b.gaps = append(b.gaps, gap{
				partition: p, from: max(read, 1) - 1, to: f.Last, since: b.newest[p], until: f.Newest, reason: notReadable,
			})
			return true
		case e.Seq <= begin:
			continue
		case e.Seq > read && read > begin && s.full():
			b.to[p] = read
			return false
		}
		b.add(p, e, s.keepsOf(p), s.pairs)
		if read == begin {
			b.received = append(b.received, e.Received)
		}
		read, b.newest[p] = e.Seq, e.Received
	}
	return true
}

// keepsOf returns the times before which the rows of a partition are left out.
func (s *session) keepsOf(partition int) cutoffs {
	after := s.copied[partition]
	if after == math.MinInt64 {
		return s.keeps
	}
	return cutoffs{events: max(s.keeps.events, after+1), changes: max(s.keeps.changes, after+1)}
}

// newestMilli returns a time in Unix milliseconds, and the least number for none.
func newestMilli(t *time.Time) int64 {
	if t == nil {
		return math.MinInt64
	}
	return t.UnixMilli()
}

// full reports whether the batch takes no more messages.
func (s *session) full() bool {
	return s.batch.count >= s.most || s.batch.size() >= s.p.opts.BatchBytes
}

// worthWriting reports whether the batch has rows, or moves positions that were not written for long.
func (s *session) worthWriting() bool {
	if s.batch.count > 0 || len(s.batch.gaps) > 0 {
		return true
	}
	for i, to := range s.batch.to {
		if to > s.batch.from[i] && s.writes(i) && (s.fresh[i] || time.Since(s.moved) > moveEvery) {
			return true
		}
	}
	return false
}

// expire removes rows that are older than the settings say.
func (s *session) expire(ctx context.Context) error {
	if !s.owned[0] || time.Since(s.expired) < expireEvery {
		return nil
	}
	now, next := time.Now(), expireEvery
	for _, t := range []*spans{&s.events, &s.changes, &s.notifications.spans} {
		err := s.bounded(ctx, func(ctx context.Context) error {
			dropped, err := t.expire(ctx, s.conn, now)
			if len(dropped) > 0 {
				s.p.log.Info("old rows were removed from PostgreSQL", "tables", dropped)
			}
			return err
		})
		if s.conn.IsClosed() {
			return err
		}
		if err != nil {
			s.p.rare.Warn("old rows stay in PostgreSQL until the next try", t.table, "err", err)
			next = time.Minute
		}
	}
	s.expired = now.Add(next - expireEvery)
	return nil
}
