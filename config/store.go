// Package config stores what users define (checks, handlers, entities, users, roles) and gives it to readers as one
// immutable snapshot. Package api writes most definitions; intake, schedule, pipeline, auth and others read them.
//
// Definitions are in a bucket of the broker, one JSON document each, and are written with compare-and-swap on the
// document's revision. Every backend watches the bucket and keeps a snapshot of it, which readers get with one atomic
// load. The event path reads nothing else. A write returns after the local snapshot has it and the listeners (OnChange)
// have been called with it. So the writer can read it back, and everything that listeners derive from it is up to date.
//
// resource.Kinds has the names of the kinds; a Kind here adds the Go type. The package checks neither rights nor
// definitions: package api does.
package config

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Errors of writes.
var (
	ErrExists   = errors.New("resource already exists")
	ErrNotFound = errors.New("not found")
)

const (
	bucketName = "config"
	streamName = "KV_" + bucketName
	secretKind = "secret" // keys of this kind are not definitions and stay out of the snapshot
)

// Options wires a Store. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	Broker *broker.Broker
	// Written is called for each write with an author, before the write returns.
	Written func(context.Context, Write)
	// TombstoneGrace is how long the mark of a deleted definition stays in the bucket.
	TombstoneGrace time.Duration
	Logger         *slog.Logger
	Registerer     prometheus.Registerer
}

// Change is one definition that was written or deleted.
type Change struct {
	Kind, Namespace, Name string
	Deleted               bool
	Revision              uint64 // of the snapshot with this change
}

// Store keeps the bucket of definitions and its snapshot.
type Store struct {
	opts    Options
	log     *slog.Logger
	metrics metrics

	rare *rarelog.Log

	bucket   jetstream.KeyValue
	mark     *broker.Mark
	secrets  map[string]struct{} // keys of secrets; only the watcher uses it, and the next two fields
	complete bool                // everything that was stored at the start is loaded
	stream   jetstream.Stream    // of the bucket
	loading  uint64              // the revision that the initial load reaches
	outage   broker.Outage       // times when the broker's store does not answer
	snapshot atomic.Pointer[Snapshot]

	mu        sync.Mutex    // guards the fields below
	notified  uint64        // the listeners have been called with all changes up to this revision
	advanced  chan struct{} // closed when notified advances
	listeners map[int]func(Change)
	nextID    int

	watcher jetstream.KeyWatcher
	done    chan struct{}
	stop    context.CancelFunc

	tombstones tombstones
	removing   sync.WaitGroup
}

type metrics struct {
	objects           *prometheus.GaugeVec
	changes           prometheus.Counter
	unusable          prometheus.Counter
	tombstonesRemoved prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Store) metrics {
	m := metrics{
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lapwing_config_objects", Help: "Definitions in the snapshot, by kind.",
		}, []string{"kind"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_config_changes_total", Help: "Changes of definitions that reached the snapshot.",
		}),
		unusable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_config_unusable_total", Help: "Stored definitions that could not be decoded and were left out.",
		}),
		tombstonesRemoved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_config_tombstones_removed_total", Help: "Marks of deleted definitions that were removed from the bucket.",
		}),
	}
	if r != nil {
		r.MustRegister(m.objects, m.changes, m.unusable, m.tombstonesRemoved, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_config_tombstones", Help: "Marks of deleted definitions in the bucket, which are removed after 30 minutes.",
		}, func() float64 { return float64(s.tombstones.len()) }))
	}
	return m
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options { return Options{TombstoneGrace: 30 * time.Minute} }

// New makes a Store over a broker that Start will find running.
func New(opts Options) (*Store, error) {
	if opts.Broker == nil {
		return nil, errors.New("config: no broker")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.TombstoneGrace = cmp.Or(opts.TombstoneGrace, DefaultOptions().TombstoneGrace)
	s := &Store{
		opts:       opts,
		log:        opts.Logger.With("component", "config"),
		advanced:   make(chan struct{}),
		listeners:  map[int]func(Change){},
		tombstones: tombstones{wake: make(chan struct{}, 1)},
		secrets:    map[string]struct{}{},
	}
	s.rare = rarelog.New(s.log)
	s.metrics = newMetrics(opts.Registerer, s)
	s.snapshot.Store(Empty())
	return s, nil
}

// Start opens the bucket and returns when the snapshot has everything in it.
func (s *Store) Start(ctx context.Context) error {
	bucket, err := s.opts.Broker.JetStream().CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      bucketName,
		Description: "lapwing definitions",
		History:     1,
		Storage:     jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("open config bucket: %w", err)
	}
	s.bucket = bucket
	if s.mark, err = s.opts.Broker.Mark(streamName); err != nil {
		return err
	}
	if err := s.openStream(ctx); err != nil {
		return err
	}
	watchCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.watcher, err = bucket.WatchAll(watchCtx)
	if err != nil {
		cancel()
		return fmt.Errorf("watch config bucket: %w", err)
	}
	s.stop, s.done = cancel, make(chan struct{})
	loaded := make(chan struct{})
	go s.watch(loaded)
	if err := s.waitLoaded(ctx, loaded); err != nil {
		_ = s.Stop()
		return err
	}
	s.removing.Go(func() { s.removeTombstones(watchCtx) })
	return nil
}

// loadPause is how long the initial load may bring no definition before it counts as stuck.
const loadPause = time.Minute

// waitLoaded waits for the end of the initial load, for as long as definitions arrive.
func (s *Store) waitLoaded(ctx context.Context, loaded <-chan struct{}) error {
	stuck := time.NewTimer(loadPause)
	defer stuck.Stop()
	for {
		s.mu.Lock()
		advanced := s.advanced
		s.mu.Unlock()
		select {
		case <-loaded:
			return nil
		case <-advanced:
			stuck.Reset(loadPause)
		case <-stuck.C:
			return fmt.Errorf("load config: no definition came from the broker for %s (newest revision %d)",
				loadPause, s.Snapshot().Revision())
		case <-ctx.Done():
			return fmt.Errorf("load config: %w", ctx.Err())
		}
	}
}

// Stop ends the watch. The last snapshot stays readable.
func (s *Store) Stop() error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	_ = s.watcher.Stop()
	<-s.done
	s.removing.Wait()
	s.stop = nil
	return nil
}

// openStream finds the bucket's stream and its newest revision. That revision may be a deletion whose tombstone is
// gone. The snapshot's revision must still not go back below it.
func (s *Store) openStream(ctx context.Context) (err error) {
	if s.stream, err = s.opts.Broker.JetStream().Stream(ctx, "KV_"+bucketName); err != nil {
		return fmt.Errorf("open stream of config bucket: %w", err)
	}
	s.loading = s.stream.CachedInfo().State.LastSeq
	return nil
}

// Snapshot returns the newest snapshot.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// OnChange calls f for every later change, in order, after the snapshot has it and before its write returns. f runs on
// the watcher's goroutine, and all writes wait for it. So f must not block, write a definition, or take a lock that is
// held during such a write. Slow work belongs in a goroutine that f wakes; writes do not wait for that. cancel ends the
// calls.
func (s *Store) OnChange(f func(Change)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextID
	s.nextID++
	s.listeners[id] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, id)
	}
}

// watch applies updates to the snapshot, all that are waiting at a time: when 18,000 agents register, the snapshot is
// swapped once per burst and not once per agent.
func (s *Store) watch(loaded chan struct{}) {
	defer close(s.done)
	updates := s.watcher.Updates()
	for first := range updates {
		pending := []jetstream.KeyValueEntry{first}
		for more := true; more && len(pending) < 4096; {
			select {
			case e, ok := <-updates:
				if !ok {
					more = false
					break
				}
				pending = append(pending, e)
			default:
				more = false
			}
		}
		initial := s.apply(pending)
		if initial {
			close(loaded)
		}
	}
}

// apply swaps in a snapshot with the entries and calls the listeners. It reports whether the entries had the mark that
// ends the initial load.
func (s *Store) apply(entries []jetstream.KeyValueEntry) (initialDone bool) {
	old := s.snapshot.Load()
	next := &Snapshot{revision: old.revision, trees: append([]*iradix.Tree[any](nil), old.trees...)}
	txns := make([]*iradix.Txn[any], len(next.trees))
	var changes []Change
	for _, e := range entries {
		if e == nil {
			initialDone = true
			next.revision = max(next.revision, s.loading)
			continue
		}
		next.revision = max(next.revision, e.Revision())
		deleted := e.Operation() != jetstream.KeyValuePut
		if deleted {
			s.tombstones.add(tombstone{key: e.Key(), revision: e.Revision(), made: e.Created()})
		}
		kind, namespace, name, err := parseBucketKey(e.Key())
		if err != nil {
			s.unusable(e.Key(), err)
			continue
		}
		if kind == secretKind {
			s.countSecret(e)
			continue
		}
		id := kindByName(kind)
		if id < 0 {
			s.unusable(e.Key(), fmt.Errorf("unknown kind %q", kind))
			continue
		}
		if txns[id] == nil {
			txns[id] = next.trees[id].Txn()
		}
		if deleted {
			txns[id].Delete(treeKey(namespace, name))
		} else {
			obj, err := kinds[id].decode(e.Value())
			if err != nil {
				s.unusable(e.Key(), err)
				continue
			}
			txns[id].Insert(treeKey(namespace, name), obj)
		}
		changes = append(changes, Change{Kind: kind, Namespace: namespace, Name: name, Deleted: deleted, Revision: e.Revision()})
	}
	for id, txn := range txns {
		if txn != nil {
			next.trees[id] = txn.Commit()
			s.metrics.objects.WithLabelValues(kinds[id].name).Set(float64(next.trees[id].Len()))
		}
	}
	s.metrics.changes.Add(float64(len(changes)))
	// Before the writers return: an acknowledged write must be counted.
	if s.complete = s.complete || initialDone; s.complete {
		s.mark.Holds(next.revision, s.live(next))
	}
	s.swap(next, changes)
	return initialDone
}

// swap makes a snapshot the newest, calls the listeners, and then releases the writers that wait for it. Releasing
// writers first would not help a listener that waits for a writer: the listeners run on the goroutine that brings the
// next write.
func (s *Store) swap(next *Snapshot, changes []Change) {
	s.mu.Lock()
	s.snapshot.Store(next)
	listeners := make([]func(Change), 0, len(s.listeners))
	for id := range s.nextID {
		if f, ok := s.listeners[id]; ok {
			listeners = append(listeners, f)
		}
	}
	s.mu.Unlock()
	for _, c := range changes {
		for _, f := range listeners {
			f(c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notified = next.revision
	close(s.advanced)
	s.advanced = make(chan struct{})
}

func (s *Store) countSecret(e jetstream.KeyValueEntry) {
	if e.Operation() == jetstream.KeyValuePut {
		s.secrets[e.Key()] = struct{}{}
	} else {
		delete(s.secrets, e.Key())
	}
}

// live returns how many keys of the bucket have a value.
func (s *Store) live(sn *Snapshot) uint64 {
	n := len(s.secrets)
	for _, t := range sn.trees {
		n += t.Len()
	}
	return uint64(n)
}

func (s *Store) unusable(key string, err error) {
	s.metrics.unusable.Inc()
	s.log.Error("stored definition cannot be used", "key", key, "err", err)
}

// wait returns when the snapshot is at the revision and the listeners have been called with it.
func (s *Store) wait(ctx context.Context, revision uint64) error {
	s.outage.Answered()
	for {
		s.mu.Lock()
		advanced := s.advanced
		reached := s.notified >= revision
		s.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return fmt.Errorf("wait for config revision %d: %w", revision, ctx.Err())
		}
	}
}

// Create writes an object that must not exist yet: it fails with ErrExists if it does.
func Create[T any](ctx context.Context, s *Store, k Kind[T], obj *T) error {
	key, value, err := encode(s, k, obj)
	if err != nil {
		return err
	}
	rev, err := s.bucket.Create(ctx, key, value)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("create %s: %w", key, ErrExists)
	}
	if err != nil {
		return s.failed("create", key, err)
	}
	namespace, name := k.Key(obj)
	s.written(ctx, k.String(), namespace, name, nil, value, rev)
	return s.wait(ctx, rev)
}

// Put writes an object, whether it exists or not.
func Put[T any](ctx context.Context, s *Store, k Kind[T], obj *T) error {
	key, value, err := encode(s, k, obj)
	if err != nil {
		return err
	}
	var rev uint64
	var old []byte
	if s.authored(ctx) {
		old, rev, err = s.replace(ctx, key, value)
	} else {
		rev, err = s.bucket.Put(ctx, key, value)
	}
	if err != nil {
		return s.failed("put", key, err)
	}
	namespace, name := k.Key(obj)
	s.written(ctx, k.String(), namespace, name, old, value, rev)
	return s.wait(ctx, rev)
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
func (s *Store) delete(ctx context.Context, kind, namespace, name string, meant func(value []byte) (bool, error)) error {
	key := bucketKey(kind, namespace, name)
	if len(key) > maxKey {
		return fmt.Errorf("delete %s %s: %w", kind, resource.Short(name), ErrNotFound)
	}
	for {
		entry, err := s.bucket.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return fmt.Errorf("delete %s: %w", key, ErrNotFound)
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		if meant != nil {
			yes, err := meant(entry.Value())
			if err != nil {
				return fmt.Errorf("delete %s: decode present value: %w", key, err)
			}
			if !yes {
				return fmt.Errorf("delete %s: %w", key, ErrNotFound)
			}
		}
		// The bucket's own Delete does not return the tombstone's revision, which we must wait for.
		mark := &nats.Msg{Subject: "$KV." + bucketName + "." + key, Header: nats.Header{"KV-Operation": {"DEL"}}}
		ack, err := s.opts.Broker.JetStream().PublishMsg(ctx, mark, jetstream.WithExpectLastSequencePerSubject(entry.Revision()))
		if wrongRevision(err) {
			continue
		}
		if err != nil {
			return s.failed("delete", key, err)
		}
		s.written(ctx, kind, namespace, name, entry.Value(), nil, ack.Sequence)
		return s.wait(ctx, ack.Sequence)
	}
}

// Update changes an object by compare-and-swap. change gets a copy of the present object and returns the new one; it is
// called again if another write came first. Update fails with ErrNotFound if there is no object, and with change's
// error.
func Update[T any](ctx context.Context, s *Store, k Kind[T], namespace, name string, change func(old *T) (*T, error)) (*T, error) {
	key := bucketKey(k.String(), namespace, name)
	if len(key) > maxKey {
		return nil, fmt.Errorf("update %s %s: %w", k.String(), resource.Short(name), ErrNotFound)
	}
	for {
		entry, err := s.bucket.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, fmt.Errorf("update %s: %w", key, ErrNotFound)
		}
		if err != nil {
			return nil, fmt.Errorf("update %s: %w", key, err)
		}
		old := new(T)
		if err := json.Unmarshal(entry.Value(), old); err != nil {
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
		rev, err := s.bucket.Update(ctx, key, value, entry.Revision())
		if wrongRevision(err) {
			continue
		}
		if err != nil {
			return nil, s.failed("update", key, err)
		}
		s.written(ctx, k.String(), namespace, name, entry.Value(), value, rev)
		return obj, s.wait(ctx, rev)
	}
}

// Secret returns the cluster-wide random secret of that name. The first call makes it.
func (s *Store) Secret(ctx context.Context, name string, size int) ([]byte, error) {
	key := bucketKey(secretKind, "", name)
	for {
		entry, err := s.bucket.Get(ctx, key)
		if err == nil {
			return entry.Value(), nil
		}
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, fmt.Errorf("read secret %s: %w", name, err)
		}
		secret := make([]byte, size)
		_, _ = rand.Read(secret) // never fails
		if _, err := s.bucket.Create(ctx, key, secret); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			return nil, fmt.Errorf("create secret %s: %w", name, err)
		}
	}
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

func wrongRevision(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}
