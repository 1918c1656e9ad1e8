package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/postgres/journal"
)

// ErrNotConfigured says that the backend has no PostgreSQL.
var ErrNotConfigured = errors.New("PostgreSQL is not configured")

// EventQuery selects events. Empty names select all.
type EventQuery struct {
	Namespace, Entity, Check string
	// Since and Until bound when the backend received the events: from Since up to and without Until.
	Since, Until time.Time
}

// StoredEvent is an event with what the fold knew of its check right after it.
type StoredEvent struct {
	Received                                         time.Time
	Partition                                        int
	Seq                                              int64
	Sub                                              int
	Entity, Check                                    string // Check is "" for metrics alone
	Status                                           uint32
	Occurrences, OccurrencesWatermark                int64
	Incident, Resolution, Silenced, Flapping, Metric bool
	Body                                             []byte // as state.Applied.Body
}

// ID is the event's id, as in deliveries and traces.
func (e *StoredEvent) ID() string { return fmt.Sprintf("%d-%d-%d", e.Partition, e.Seq, e.Sub) }

const (
	// A page of events ends when it has one of both.
	eventPage      = 200
	eventPageBytes = 4 << 20
	// The events of a page come from a span of time: its length follows how many events there are.
	leastSpan, firstSpan, mostSpan = time.Millisecond, time.Minute, 24 * time.Hour
	// eventTimeout bounds the reading of one span.
	eventTimeout = 2 * time.Minute
)

// Events reads stored events over a connection of its own, the oldest first. Callers use it from one goroutine.
type Events struct {
	conn  *pgx.Conn
	query EventQuery
	from  time.Time // all before it was read
	last  *StoredEvent
	span  time.Duration
}

// Events connects to read events. Close the connection.
func (p *Projection) Events(ctx context.Context, q EventQuery) (*Events, error) {
	p.mu.Lock()
	dsn := p.settings.DSN
	p.mu.Unlock()
	if dsn == "" {
		return nil, ErrNotConfigured
	}
	conn, err := connect(ctx, dsn, p.opts.ConnectTimeout)
	if err != nil {
		return nil, err
	}
	version, err := storedVersion(ctx, conn)
	if err == nil && version != schemaVersion {
		err = fmt.Errorf("the schema in PostgreSQL has version %d, %d is needed", version, schemaVersion)
	}
	r := &Events{conn: conn, query: q, from: q.Since, span: firstSpan}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close closes the connection.
func (r *Events) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return r.conn.Close(ctx)
}

// ReadUpTo returns a time before which all selected events were returned.
func (r *Events) ReadUpTo() time.Time {
	if r.last != nil {
		return r.last.Received
	}
	return r.from
}

// Next returns the next events; none behind the last one. It returns none, and more, if it found none in a long time.
func (r *Events) Next(ctx context.Context) (page []StoredEvent, more bool, err error) {
	if !r.from.Before(r.query.Until) {
		return nil, false, nil
	}
	to := r.query.Until
	if end := r.from.Add(r.span); end.Before(to) {
		to = end
	}
	page, full, err := r.read(ctx, to)
	if err != nil {
		return nil, false, fmt.Errorf("read events from PostgreSQL: %w", err)
	}
	if full {
		last := page[len(page)-1]
		last.Body = nil
		r.last = &last
		r.from, r.span = r.last.Received, max(r.span/2, leastSpan)
		return page, true, nil
	}
	r.from, r.last = to, nil
	r.span = min(2*r.span, mostSpan)
	return page, to.Before(r.query.Until), nil
}

// read reads events up to a time, until the page is full.
func (r *Events) read(ctx context.Context, to time.Time) (page []StoredEvent, full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	q := &r.query
	after := StoredEvent{Received: r.from, Partition: -1}
	if r.last != nil {
		after = *r.last
	}
	found, err := r.conn.Query(ctx, `SELECT v.received, v.partition, v.seq, v.sub, p.entity, p."check", v.status,
		v.occurrences, v.watermark, v.flags, v.body
		FROM lapwing_data.event v JOIN lapwing_data.pair p ON p.id = v.pair_id
		WHERE v.received >= $1 AND v.received < $2 AND (v.received, v.partition, v.seq, v.sub) > ($1, $3::int, $4::bigint, $5::int)
		AND p.namespace = $6 AND ($7 = '' OR p.entity = $7) AND ($8 = '' OR p."check" = $8)
		ORDER BY v.received, v.partition, v.seq, v.sub LIMIT $9`,
		after.Received, to, after.Partition, after.Seq, after.Sub, text(q.Namespace), text(q.Entity), text(q.Check), eventPage)
	if err != nil {
		return nil, false, err
	}
	defer found.Close()
	for size := 0; found.Next(); {
		var e StoredEvent
		var status, flags int32
		err := found.Scan(&e.Received, &e.Partition, &e.Seq, &e.Sub, &e.Entity, &e.Check, &status,
			&e.Occurrences, &e.OccurrencesWatermark, &flags, &e.Body)
		if err != nil {
			return nil, false, err
		}
		e.Status = uint32(status)
		e.Incident, e.Resolution = flags&journal.Incident != 0, flags&journal.Resolution != 0
		e.Silenced, e.Flapping, e.Metric = flags&journal.Silenced != 0, flags&journal.Flapping != 0, flags&journal.Metrics != 0
		page = append(page, e)
		if size += len(e.Body); len(page) == eventPage || size >= eventPageBytes {
			return page, true, nil
		}
	}
	return page, false, found.Err()
}
