package config

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// This file writes definitions. Each write but an unconditional Put names the revision that it replaces. The broker
// refuses it if there is a newer one. Then the writer waits for that, and begins anew with what it finds.

// conflictPause bounds the wait for the write that came first. It may have failed, so that nothing comes.
const conflictPause = 100 * time.Millisecond

// place is where the definition of a kind is stored. kind is -1 for an unknown one.
type place struct {
	kind                 int
	key, namespace, name string
}

// Create writes an object that must not exist yet: it fails with ErrExists if it does.
func Create[T any](ctx context.Context, s *Store, k Kind[T], obj *T) error {
	key, value, err := encode(s, k, obj)
	if err != nil {
		return err
	}
	if IsDryRun(ctx) {
		if was, known := s.present(key); known && !was.deleted {
			return fmt.Errorf("create %s: %w", key, ErrExists)
		}
		return nil
	}
	rev, err := s.create(ctx, key, value)
	if err != nil {
		return err
	}
	namespace, name := k.Key(obj)
	s.written(ctx, k.String(), namespace, name, nil, value, rev)
	return s.wait(ctx, rev)
}

// create writes the first value of a key, or the first one after its deletion.
func (s *Store) create(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	for {
		was, known := s.present(key)
		if known && !was.deleted {
			return 0, fmt.Errorf("create %s: %w", key, ErrExists)
		}
		revision, err = s.swapIn(ctx, key, value, was.revision)
		if s.outrun(ctx, err) && was.revision > 0 { // the tombstone may be gone
			revision, err = s.swapIn(ctx, key, value, 0)
		}
		switch {
		case err == nil:
			return revision, nil
		case !s.outrun(ctx, err):
			return 0, s.failed("create", key, err)
		}
		if err := s.passed(ctx, key, was.revision); err != nil {
			return 0, fmt.Errorf("create %s: %w", key, err)
		}
	}
}

// Put writes an object, whether it exists or not.
func Put[T any](ctx context.Context, s *Store, k Kind[T], obj *T) error {
	key, value, err := encode(s, k, obj)
	if err != nil {
		return err
	}
	if IsDryRun(ctx) {
		return nil
	}
	namespace, name := k.Key(obj)
	var rev uint64
	var old []byte
	if s.authored(ctx) {
		old, rev, err = s.replace(ctx, place{k.id, key, namespace, name}, value)
	} else if rev, err = s.opts.Broker.Write(ctx, &nats.Msg{Subject: subjectPrefix + key, Data: value}); err != nil {
		err = s.failed("put", key, err)
	}
	if err != nil {
		return err
	}
	s.written(ctx, k.String(), namespace, name, old, value, rev)
	return s.wait(ctx, rev)
}

// replace writes a value and returns the value it replaced, nil if there was none.
func (s *Store) replace(ctx context.Context, at place, value []byte) (old []byte, revision uint64, err error) {
	key := at.key
	for {
		old, was, err := s.value(at)
		if errors.Is(err, ErrNotFound) {
			revision, err = s.create(ctx, key, value)
			if errors.Is(err, ErrExists) {
				continue
			}
			return nil, revision, err
		}
		if err != nil {
			return nil, 0, fmt.Errorf("put %s: %w", key, err)
		}
		revision, err = s.swapIn(ctx, key, value, was)
		switch {
		case err == nil:
			return old, revision, nil
		case !s.outrun(ctx, err):
			return nil, 0, s.failed("put", key, err)
		}
		if err := s.passed(ctx, key, was); err != nil {
			return nil, 0, fmt.Errorf("put %s: %w", key, err)
		}
	}
}

// Delete deletes an object. It fails with ErrNotFound if there is none.
func Delete[T any](ctx context.Context, s *Store, k Kind[T], namespace, name string) error {
	return DeleteIf(ctx, s, k, namespace, name, nil)
}

// DeleteIf is Delete for an object for which meant returns true. It fails with ErrNotFound too if meant returns false.
// With a nil meant, the object need not be readable.
func DeleteIf[T any](ctx context.Context, s *Store, k Kind[T], namespace, name string, meant func(*T) bool) error {
	var asked func(value []byte) (bool, error)
	if meant != nil {
		asked = func(value []byte) (bool, error) {
			obj := new(T)
			if err := json.Unmarshal(value, obj); err != nil {
				return false, err
			}
			return meant(obj), nil
		}
	}
	return s.delete(ctx, k.String(), namespace, name, asked)
}

// DeleteAny is Delete for a row of resource.Kinds.
func DeleteAny(ctx context.Context, s *Store, k *resource.Kind, namespace, name string) error {
	return s.delete(ctx, k.Role, namespace, name, nil)
}

// delete deletes an object if meant is nil or returns true for its present value.
func (s *Store) delete(
	ctx context.Context, kind, namespace, name string, meant func(value []byte) (bool, error),
) error {
	key := bucketKey(kind, namespace, name)
	if len(key) > maxKey {
		return fmt.Errorf("delete %s %s: %w", kind, resource.Short(name), ErrNotFound)
	}
	for {
		old, was, err := s.value(place{kindByName(kind), key, namespace, name})
		if err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		if meant != nil {
			yes, err := meant(old)
			if err != nil {
				return fmt.Errorf("delete %s: decode present value: %w", key, err)
			}
			if !yes {
				return fmt.Errorf("delete %s: %w", key, ErrNotFound)
			}
		}
		if IsDryRun(ctx) {
			return nil
		}
		tombstone := &nats.Msg{Subject: subjectPrefix + key, Header: nats.Header{operationHeader: {deletion}}}
		rev, err := s.opts.Broker.WriteIf(ctx, streamName, tombstone, was)
		if s.outrun(ctx, err) {
			if err := s.passed(ctx, key, was); err != nil {
				return fmt.Errorf("delete %s: %w", key, err)
			}
			continue
		}
		if err != nil {
			return s.failed("delete", key, err)
		}
		s.written(ctx, kind, namespace, name, old, nil, rev)
		return s.wait(ctx, rev)
	}
}

// Update changes an object by compare-and-swap. change gets a copy of the present object and returns the new one; it is
// called again if another write came first. Update fails with ErrNotFound if there is no object, and with change's
// error.
func Update[T any](
	ctx context.Context, s *Store, k Kind[T], namespace, name string, change func(old *T) (*T, error),
) (*T, error) {
	key := bucketKey(k.String(), namespace, name)
	if len(key) > maxKey {
		return nil, fmt.Errorf("update %s %s: %w", k.String(), resource.Short(name), ErrNotFound)
	}
	for {
		present, was, err := s.value(place{k.id, key, namespace, name})
		if err != nil {
			return nil, fmt.Errorf("update %s: %w", key, err)
		}
		old := new(T)
		if err := json.Unmarshal(present, old); err != nil {
			return nil, fmt.Errorf("update %s: decode present value: %w", key, err)
		}
		obj, err := change(old)
		if err != nil {
			return nil, err
		}
		newKey, value, err := encode(s, k, obj)
		if err != nil {
			return nil, err
		}
		if newKey != key {
			return nil, fmt.Errorf("update %s: the change renames it to %s", key, newKey)
		}
		if IsDryRun(ctx) {
			return obj, nil
		}
		rev, err := s.swapIn(ctx, key, value, was)
		if s.outrun(ctx, err) {
			if err := s.passed(ctx, key, was); err != nil {
				return nil, fmt.Errorf("update %s: %w", key, err)
			}
			continue
		}
		if err != nil {
			return nil, s.failed("update", key, err)
		}
		s.written(ctx, k.String(), namespace, name, present, value, rev)
		return obj, s.wait(ctx, rev)
	}
}

// Secret returns the cluster-wide random secret of that name. The first call makes it.
func (s *Store) Secret(ctx context.Context, name string, size int) ([]byte, error) {
	key := bucketKey(secretKind, "", name)
	for {
		if was, known := s.present(key); known && !was.deleted {
			return was.raw, nil
		}
		secret := make([]byte, size)
		_, _ = rand.Read(secret) // never fails
		rev, err := s.create(ctx, key, secret)
		if err == nil {
			err = s.wait(ctx, rev)
		}
		if err != nil && !errors.Is(err, ErrExists) {
			return nil, err
		}
	}
}

// removedMember begins the names of the notes on members that were removed. The notes are kept as secrets are, which
// earlier releases know too.
const removedMember = "removed-member/"

// RemoveMember notes that a member of the cluster was removed for good, by its name at the broker.
func (s *Store) RemoveMember(ctx context.Context, server string) error {
	_, err := s.Secret(ctx, removedMember+server, 1)
	return err
}

// Removed reports whether RemoveMember was called for a member.
func (s *Store) Removed(server string) bool {
	note, known := s.present(bucketKey(secretKind, "", removedMember+server))
	return known && !note.deleted
}

// present returns what the bucket has for a key, as far as the snapshot goes; false if it has nothing, not even a
// tombstone.
func (s *Store) present(key string) (stored, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.stored[key]
	return st, ok
}

// Written returns when the present definition was written, by the clock of the broker; the zero time if there is none.
func Written[T any](s *Store, k Kind[T], namespace, name string) time.Time {
	st, ok := s.present(bucketKey(k.String(), namespace, name))
	if !ok || st.deleted {
		return time.Time{}
	}
	return time.UnixMilli(st.written)
}

// value returns the value of a key and its revision. It fails with ErrNotFound if there is none.
func (s *Store) value(at place) (value []byte, revision uint64, err error) {
	s.mu.Lock()
	st, ok := s.stored[at.key]
	snapshot := s.snapshot.Load() // with mu held: its objects have the revisions of stored
	s.mu.Unlock()
	switch {
	case !ok || st.deleted:
		return nil, 0, ErrNotFound
	case st.raw != nil || at.kind < 0:
		return st.raw, st.revision, nil
	}
	obj, _ := snapshot.trees[at.kind].Get(treeKey(at.namespace, at.name))
	if value, err = json.Marshal(obj); err != nil {
		return nil, 0, fmt.Errorf("encode present value: %w", err)
	}
	return value, st.revision, nil
}

// swapIn writes a value if the newest revision of the key is the expected one, or if there is none and 0 is expected.
func (s *Store) swapIn(ctx context.Context, key string, value []byte, expected uint64) (revision uint64, err error) {
	msg := &nats.Msg{Subject: subjectPrefix + key, Header: nats.Header{}, Data: value}
	return s.opts.Broker.WriteIf(ctx, streamName, msg, expected)
}

// wait returns when the write with the revision is in the snapshots of this backend and of its live peers.
func (s *Store) wait(ctx context.Context, revision uint64) error {
	s.outage.Answered()
	if err := s.reach(ctx, revision); err != nil {
		return err
	}
	if s.opts.WaitPeers == nil {
		return nil
	}
	if err := s.opts.WaitPeers(ctx, revision); err != nil {
		return fmt.Errorf("wait for config revision %d on the other backends: %w", revision, err)
	}
	return nil
}

// passed waits until the snapshot has another revision of the key than the one that a write was refused for, for a
// moment at most.
func (s *Store) passed(ctx context.Context, key string, refused uint64) error {
	s.outage.Answered()
	timeout := time.NewTimer(conflictPause)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		advanced, revision := s.advanced, s.stored[key].revision
		s.mu.Unlock()
		if revision != refused {
			return nil
		}
		select {
		case <-advanced:
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("another write came first: %w", ctx.Err())
		}
	}
}

// outrun reports whether a write is to begin anew, because another one came first. If it is not known whether it was this
// one, a user must hear of that: the value may have been there for others to read. What the backend writes for itself
// is only to be there in the end.
func (s *Store) outrun(ctx context.Context, err error) bool {
	return broker.Conflict(err) && (!errors.Is(err, ErrUncertain) || !s.authored(ctx))
}

// failed wraps the error of a write, and has the broker's store repaired if it has not answered for long.
func (s *Store) failed(step, key string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(err, s.opts.Broker.TimedOut(&s.outage))
	} else {
		s.outage.Answered()
	}
	return fmt.Errorf("%s %s: %w", step, key, err)
}

// maxKey is the longest key, in bytes. The broker closes a connection that sends a much longer subject, and some of its
// subjects have a prefix before the key. Valid names give shorter keys, even if every byte is escaped.
const maxKey = 3 << 10

// encode returns the key and the value of an object, or the reason why it cannot be stored.
func encode[T any](s *Store, k Kind[T], obj *T) (key string, value []byte, err error) {
	namespace, name := k.Key(obj)
	if name == "" || !k.Cluster() && namespace == "" {
		return "", nil, fmt.Errorf("write %s: no name or namespace", k.String())
	}
	value, err = json.Marshal(obj)
	if err != nil {
		return "", nil, fmt.Errorf("encode %s %s/%s: %w", k.String(), namespace, name, err)
	}
	what := k.String() + "/" + resource.Short(name)
	if key = bucketKey(k.String(), namespace, name); len(key) > maxKey {
		return "", nil, &resource.TooLargeError{What: "the key of " + what, Size: len(key), Limit: maxKey}
	}
	if limit := s.opts.Broker.MaxPayload(); len(value) > limit {
		return "", nil, &resource.TooLargeError{What: what, Size: len(value), Limit: limit}
	}
	return key, value, nil
}
