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
	rows    map[definitionKey]int64 // the hashes of current rows; nil before they are read
	seen    *config.Snapshot        // what rows has when nothing is pending
	pending []definition            // may differ from rows
	looked  time.Time
	expired time.Time // when old rows were last removed
}

type definitionKey struct{ kind, namespace, name string }

// definition is what becomes of a row: another object, or nil if it was deleted.
type definition struct {
	definitionKey
	object any
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
	return false, s.bounded(ctx, s.expireDefinitions)
}

// defineSome looks for changes if none are pending, and writes some.
func (s *session) defineSome(ctx context.Context) error {
	d := &s.definitions
	if len(d.pending) == 0 {
		d.looked = time.Now()
		now := s.p.opts.Definitions()
		if d.rows != nil {
			d.pending = definitionChanges(d.seen, now)
		} else if err := s.compareDefinitions(ctx, now); err != nil {
			return err
		}
		d.seen = now
	}
	if len(d.pending) == 0 {
		return nil
	}
	return s.writeDefinitions(ctx)
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
		all = append(all, definition{definitionKey{name, text(namespace), text(of)}, object})
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

// compareDefinitions reads the current rows, and makes all definitions pending, and the rows without one.
func (s *session) compareDefinitions(ctx context.Context, now *config.Snapshot) error {
	found, err := s.conn.Query(ctx, "SELECT kind, namespace, name, hash FROM lapwing_data.definition WHERE until IS NULL")
	if err != nil {
		return fmt.Errorf("read the hashes of definitions: %w", err)
	}
	rows := map[definitionKey]int64{}
	var key definitionKey
	var hash int64
	_, err = pgx.ForEachRow(found, []any{&key.kind, &key.namespace, &key.name, &hash}, func() error {
		rows[key] = hash
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the hashes of definitions: %w", err)
	}
	all, gone := definitionChanges(config.Empty(), now), maps.Clone(rows)
	for i := range all {
		delete(gone, all[i].definitionKey)
	}
	for key := range gone {
		all = append(all, definition{definitionKey: key})
	}
	s.definitions.rows, s.definitions.pending = rows, all
	return nil
}

// versions has rows as the columns of unnest.
type versions struct {
	kinds, namespaces, names []string
	hashes                   []int64
	objects                  []string
}

func (v *versions) add(key definitionKey, hash int64) {
	v.kinds, v.namespaces = append(v.kinds, key.kind), append(v.namespaces, key.namespace)
	v.names, v.hashes = append(v.names, key.name), append(v.hashes, hash)
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
	for taken < min(len(d.pending), maxDefinitions) && size < s.p.opts.BatchBytes {
		next := &d.pending[taken]
		taken++
		hash, exists := d.rows[next.definitionKey]
		if next.object == nil {
			if exists {
				ended.add(next.definitionKey, hash)
			}
			continue
		}
		object, err := definitionJSON(next.object)
		if err != nil {
			return fmt.Errorf("encode %s %s/%s: %w", next.kind, next.namespace, next.name, err)
		}
		now := int64(xxhash.Sum64(object))
		if exists && now == hash {
			continue
		}
		if exists {
			ended.add(next.definitionKey, hash)
		}
		begun.add(next.definitionKey, now)
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
		d.rows[begun.key(i)] = begun.hashes[i]
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
		tag, err := tx.Exec(ctx, `UPDATE lapwing_data.definition d SET until = now()
			FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS o(kind, namespace, name, hash)
			WHERE d.kind = o.kind AND d.namespace = o.namespace AND d.name = o.name AND d.hash = o.hash AND d.until IS NULL`,
			ended.kinds, ended.namespaces, ended.names, ended.hashes)
		if err != nil {
			return fmt.Errorf("end %d definitions: %w", n, err)
		}
		if tag.RowsAffected() != int64(n) {
			return errMoved
		}
	}
	if n := len(begun.kinds); n > 0 {
		tag, err := tx.Exec(ctx, `INSERT INTO lapwing_data.definition (since, kind, namespace, name, hash, object)
			SELECT now(), kind, namespace, name, hash, object::jsonb
			FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) AS n(kind, namespace, name, hash, object)
			ON CONFLICT (kind, namespace, name) WHERE until IS NULL DO NOTHING`,
			begun.kinds, begun.namespaces, begun.names, begun.hashes, begun.objects)
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
