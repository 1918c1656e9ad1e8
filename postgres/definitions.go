package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// definitions is what the session knows of the table definition. Its work is cut into turns of one transaction each, so
// that events do not wait for a fleet's definitions.
type definitions struct {
	rows    map[definitionKey]version   // the current rows; nil before they are read
	ended   map[definitionKey]time.Time // when rows ended, of those that ended lately
	next    uint64                      // the change in the diary that comes behind pending
	pending []definition                // may differ from rows
	looked  time.Time
	noted   time.Time // when the table definition_position was last written
	expired time.Time // when old rows were last removed
}

// version is a row: the hash of its object, and since when it is so.
type version struct {
	hash  int64
	since time.Time
}

type definitionKey struct{ kind, namespace, name string }

// definition is what becomes of a row at a time: another object, or nil if it was deleted. Without a time it is so at
// present.
type definition struct {
	definitionKey
	object any
	at     time.Time
	old    bool // it may be in the table already
}

const (
	// maxDefinitions bounds the rows of a transaction.
	maxDefinitions = 1000
	// definitionLock is the key of the advisory lock under which definitions are written.
	definitionLock = migrationLock + 1
)

// define gives definitions a turn. more says that there is work for another one.
func (s *session) define(ctx context.Context) (more bool, err error) {
	o, d := &s.p.opts, &s.definitions
	if o.Definitions == nil || !o.ActsDefinitions() {
		*d = definitions{}
		return false, nil
	}
	if len(d.pending) == 0 && time.Since(d.looked) < lookEvery {
		return false, nil
	}
	switch err := s.bounded(ctx, s.defineSome); {
	case errors.Is(err, errMoved):
		*d = definitions{looked: d.looked, expired: d.expired}
		return false, nil
	case err != nil:
		return false, err
	}
	if len(d.pending) > 0 {
		return true, nil
	}
	if time.Since(d.noted) > moveEvery {
		if err := s.bounded(ctx, s.notePosition); err != nil {
			return false, err
		}
	}
	return false, s.bounded(ctx, s.expireDefinitions)
}

// defineSome looks for changes if none are pending, and writes some.
func (s *session) defineSome(ctx context.Context) error {
	d := &s.definitions
	if len(d.pending) == 0 {
		d.looked = time.Now()
		now := s.p.diary.look(s.p.opts.Definitions, d.looked)
		all, next, ok := s.p.diary.from(d.next)
		if d.rows == nil || !ok {
			if err := s.compareDefinitions(ctx, now); err != nil {
				return err
			}
		} else {
			d.pending, d.next = all, next
		}
	}
	if len(d.pending) == 0 {
		return nil
	}
	d.noted = time.Time{}
	return s.writeDefinitions(ctx)
}

// notePosition writes up to when changes are written. All members forget what came before.
func (s *session) notePosition(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, `INSERT INTO lapwing_data.definition_position AS p (written) VALUES ($1)
		ON CONFLICT (one) DO UPDATE SET written = greatest(p.written, excluded.written)`, s.definitions.looked)
	if err != nil {
		return fmt.Errorf("note the position of definitions: %w", err)
	}
	s.definitions.noted = time.Now()
	return nil
}

// readPosition returns up to when changes of definitions are written.
func (s *session) readPosition(ctx context.Context) (written time.Time, err error) {
	err = s.conn.QueryRow(ctx, "SELECT coalesce(max(written), '1970-01-01') FROM lapwing_data.definition_position").Scan(&written)
	if err != nil {
		return written, fmt.Errorf("read the position of definitions: %w", err)
	}
	return written, nil
}

// definitionChanges returns what differs between two snapshots. It compares pointers: an object that was written anew
// without a change is returned too.
func definitionChanges(from, to *config.Snapshot) (all []definition) {
	all = changesOfKind(all, "Entity", config.Entities, from, to)
	all = changesOfKind(all, "CheckConfig", config.Checks, from, to)
	return changesOfKind(all, "Silenced", config.Silences, from, to)
}

func changesOfKind[T any](all []definition, name string, kind config.Kind[T], from, to *config.Snapshot) []definition {
	if config.Same(from, to, kind) {
		return all
	}
	add := func(obj *T, object any) {
		namespace, of := kind.Key(obj)
		all = append(all, definition{definitionKey: definitionKey{name, text(namespace), text(of)}, object: object})
	}
	had := func(sn *config.Snapshot, obj *T) (*T, bool) {
		namespace, name := kind.Key(obj)
		return config.Get(sn, kind, namespace, name)
	}
	stay := 0
	for obj := range config.List(to, kind, "") {
		old, ok := had(from, obj)
		if ok {
			stay++
		}
		if old != obj {
			add(obj, obj)
		}
	}
	if stay == config.Len(from, kind) {
		return all // none was deleted
	}
	for obj := range config.List(from, kind, "") {
		if _, ok := had(to, obj); !ok {
			add(obj, nil)
		}
	}
	return all
}

// compareDefinitions reads the current rows. Pending become the changes in the diary that are newer than what the table
// has, then all present definitions and the rows without one.
func (s *session) compareDefinitions(ctx context.Context, now *config.Snapshot) error {
	written, err := s.readPosition(ctx)
	if err != nil {
		return err
	}
	found, err := s.conn.Query(ctx, "SELECT kind, namespace, name, hash, since FROM lapwing_data.definition WHERE until IS NULL")
	if err != nil {
		return fmt.Errorf("read the hashes of definitions: %w", err)
	}
	rows := map[definitionKey]version{}
	var key definitionKey
	var row version
	_, err = pgx.ForEachRow(found, []any{&key.kind, &key.namespace, &key.name, &row.hash, &row.since}, func() error {
		rows[key] = row
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the hashes of definitions: %w", err)
	}
	since := written.Add(-clockSkewOfMembers)
	found, err = s.conn.Query(ctx, `SELECT kind, namespace, name, max(until) FROM lapwing_data.definition
		WHERE until > $1 GROUP BY 1, 2, 3`, since)
	if err != nil {
		return fmt.Errorf("read definitions that ended: %w", err)
	}
	ended := map[definitionKey]time.Time{}
	var until time.Time
	_, err = pgx.ForEachRow(found, []any{&key.kind, &key.namespace, &key.name, &until}, func() error {
		ended[key] = until
		return nil
	})
	if err != nil {
		return fmt.Errorf("read definitions that ended: %w", err)
	}
	present, gone := definitionChanges(config.Empty(), now), maps.Clone(rows)
	all, next := s.p.diary.since(since)
	for i := range all {
		all[i].old = true
		gone[all[i].definitionKey] = version{}
	}
	all = append(all, present...)
	for i := range present {
		delete(gone, present[i].definitionKey)
	}
	for key := range gone {
		all = append(all, definition{definitionKey: key})
	}
	d := &s.definitions
	d.rows, d.ended, d.pending, d.next = rows, ended, all, next
	return nil
}

// versions has rows as the columns of unnest.
type versions struct {
	kinds, namespaces, names []string
	hashes                   []int64
	times                    []time.Time
	objects                  []string
}

func (v *versions) add(key definitionKey, hash int64, at time.Time) {
	v.kinds, v.namespaces = append(v.kinds, key.kind), append(v.namespaces, key.namespace)
	v.names, v.hashes, v.times = append(v.names, key.name), append(v.hashes, hash), append(v.times, at)
}

func (v *versions) key(i int) definitionKey {
	return definitionKey{v.kinds[i], v.namespaces[i], v.names[i]}
}

// writeDefinitions writes the next of what is pending. It returns errMoved if the database has other rows than it
// should: then another backend writes definitions, too.
func (s *session) writeDefinitions(ctx context.Context) error {
	d := &s.definitions
	var ended, begun versions
	taken, size := 0, 0
	present := time.Now()
	changed := map[definitionKey]bool{}
	for taken < min(len(d.pending), maxDefinitions) && size < s.p.opts.BatchBytes {
		next := &d.pending[taken]
		if changed[next.definitionKey] {
			break // a transaction has one change of a row
		}
		taken++
		row, exists := d.rows[next.definitionKey]
		at := next.at
		if next.old && (exists && !at.After(row.since) || !at.After(d.ended[next.definitionKey])) {
			continue // the table has it, or a newer one
		}
		if at.IsZero() {
			at = present
		}
		if exists && at.Before(row.since) { // by another clock
			at = row.since
		}
		at = at.Truncate(time.Microsecond)
		if next.object == nil {
			if exists {
				ended.add(next.definitionKey, row.hash, at)
				changed[next.definitionKey] = true
			}
			continue
		}
		object, err := definitionJSON(next.object)
		if err != nil {
			return fmt.Errorf("encode %s %s/%s: %w", next.kind, next.namespace, next.name, err)
		}
		now := int64(xxhash.Sum64(object))
		if exists && now == row.hash {
			continue
		}
		if exists {
			ended.add(next.definitionKey, row.hash, at)
		}
		changed[next.definitionKey] = true
		begun.add(next.definitionKey, now, at)
		begun.objects = append(begun.objects, string(object))
		size += len(object)
	}
	if len(ended.kinds)+len(begun.kinds) > 0 {
		err := inTransaction(ctx, s.conn, func(tx pgx.Tx) error { return replaceDefinitions(ctx, tx, &ended, &begun) })
		if err != nil {
			return err
		}
	}
	for i := range ended.kinds {
		delete(d.rows, ended.key(i))
	}
	for i := range begun.kinds {
		d.rows[begun.key(i)] = version{begun.hashes[i], begun.times[i]}
	}
	s.p.metrics.rows.WithLabelValues(tableDefinition).Add(float64(len(begun.kinds)))
	if d.pending = d.pending[taken:]; len(d.pending) == 0 {
		d.pending = nil // the array has a whole fleet's
	}
	return nil
}

// replaceDefinitions ends versions and begins others. Two backends that both believe they act come one after the other:
// the second finds that rows are not as it knows them. It does not wait for the first, which may hang.
func replaceDefinitions(ctx context.Context, tx pgx.Tx, ended, begun *versions) error {
	var free bool
	if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", int64(definitionLock)).Scan(&free); err != nil {
		return fmt.Errorf("ask for the right to write definitions: %w", err)
	}
	if !free {
		return errMoved
	}
	if n := len(ended.kinds); n > 0 {
		// A silence that expired ended then, also if it was removed later.
		tag, err := tx.Exec(ctx, `UPDATE lapwing_data.definition d SET until = greatest(d.since, least(o.at,
				CASE WHEN d.kind = 'Silenced' THEN to_timestamp(nullif((d.object ->> 'expire_at')::float8, 0)) END))
			FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[]) AS o(kind, namespace, name, hash, at)
			WHERE d.kind = o.kind AND d.namespace = o.namespace AND d.name = o.name AND d.hash = o.hash AND d.until IS NULL`,
			ended.kinds, ended.namespaces, ended.names, ended.hashes, ended.times)
		if err != nil {
			return fmt.Errorf("end %d definitions: %w", n, err)
		}
		if tag.RowsAffected() != int64(n) {
			return errMoved
		}
	}
	if n := len(begun.kinds); n > 0 {
		tag, err := tx.Exec(ctx, `INSERT INTO lapwing_data.definition (since, kind, namespace, name, hash, object)
			SELECT at, kind, namespace, name, hash, object::jsonb
			FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::timestamptz[])
				AS n(kind, namespace, name, hash, object, at)
			ON CONFLICT (kind, namespace, name) WHERE until IS NULL DO NOTHING`,
			begun.kinds, begun.namespaces, begun.names, begun.hashes, begun.objects,
			begun.times)
		if err != nil {
			return fmt.Errorf("write %d definitions: %w", n, err)
		}
		if tag.RowsAffected() != int64(n) {
			return errMoved
		}
	}
	return nil
}

// expireDefinitions removes versions that ended longer ago than changes are kept, some in each turn.
func (s *session) expireDefinitions(ctx context.Context) error {
	if s.settings.Changes == 0 || time.Since(s.definitions.expired) < expireEvery {
		return nil
	}
	tag, err := s.conn.Exec(ctx, `DELETE FROM lapwing_data.definition WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM lapwing_data.definition WHERE until < now() - make_interval(secs => $1::float8) LIMIT $2::int))`,
		s.settings.Changes.Seconds(), maxDefinitions)
	if err != nil {
		return fmt.Errorf("remove old definitions: %w", err)
	}
	if tag.RowsAffected() < maxDefinitions {
		s.definitions.expired = time.Now()
	}
	return nil
}

// definitionJSON returns the JSON that readers of the API see who may not change the definition, as jsonb takes it.
func definitionJSON(object any) ([]byte, error) {
	switch o := object.(type) {
	case *resource.EntityConfig:
		object = o.Redacted()
	case *resource.CheckConfig:
		object = o.Redacted()
	}
	b, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	withoutNUL(b)
	return b, nil
}

// withoutNUL replaces NUL in the strings of JSON by U+FFFD. jsonb refuses it, and nothing else that json.Marshal writes:
// that puts U+FFFD in the place of bytes that are not UTF-8.
func withoutNUL(b []byte) {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		i++ // the character behind a backslash begins no escape, even if it is one
		if bytes.HasPrefix(b[i:], []byte("u0000")) {
			copy(b[i:], "ufffd")
		}
	}
}
