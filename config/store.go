// Package config stores what users define (checks, handlers, entities, users, roles) and gives it to readers as one
// immutable snapshot. Package api writes most definitions; intake, schedule, pipeline, auth and others read them.
//
// Definitions are in a stream of the broker that is laid out as a key-value bucket, one JSON document each. Every
// backend follows its own copy of the stream and keeps a snapshot of it, which readers get with one atomic load. The
// event path reads nothing else. Writes compare and swap the revision that the snapshot has, never one that was read
// from the bucket: in a cluster such a read may be old. A write returns after the local snapshot has it and the
// listeners (OnChange) have been called with it. So the writer can read it back, and everything that listeners derive
// from it is up to date.
//
// resource.Kinds has the names of the kinds; a Kind here adds the Go type. The package checks neither rights nor
// definitions: package api does.
package config

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Errors of writes.
var (
	ErrExists   = errors.New("resource already exists")
	ErrNotFound = errors.New("not found")
	// ErrUncertain is for a write that may have taken effect.
	ErrUncertain = broker.ErrUncertain
)

const (
	streamName    = "KV_config"
	subjectPrefix = "$KV.config." // before the key
	secretKind    = "secret"      // keys of this kind are not definitions and stay out of the snapshot

	operationHeader = "KV-Operation" // only tombstones have it
	deletion        = "DEL"
)

// Options wires a Store. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	Broker *broker.Broker
	// Written is called for each write with an author, before the write returns.
	Written func(context.Context, Write)
	// WaitPeers is called for each write after the local snapshot has it, and returns when the snapshots of the live
	// peers have that revision too. Default: nothing, as for a backend that is alone.
	WaitPeers func(ctx context.Context, revision uint64) error
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

	mark     *broker.Mark
	live     uint64 // keys with a value; only the watcher uses it, and complete
	digest   uint64 // see Snapshot.Digest
	complete bool   // everything that was stored at the start is loaded
	stream   jetstream.Stream
	loading  uint64        // the stream's newest sequence number at the start
	outage   broker.Outage // times when the broker's store does not answer
	snapshot atomic.Pointer[Snapshot]

	mu        sync.Mutex        // guards the fields below
	stored    map[string]stored // what the bucket has, by key
	notified  uint64            // the listeners have been called with all changes up to this revision
	advanced  chan struct{}     // closed when notified advances
	listeners map[int]func(Change)
	nextID    int

	following *broker.Following
	done      chan struct{}
	stop      context.CancelFunc

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
		stored:     map[string]stored{},
	}
	s.outage.Stream = streamName
	s.rare = rarelog.New(s.log)
	s.metrics = newMetrics(opts.Registerer, s)
	s.snapshot.Store(Empty())
	return s, nil
}

// Start opens the bucket and returns when the snapshot has everything in it. In a cluster it waits for as long as ctx
// allows until the bucket is there.
func (s *Store) Start(ctx context.Context) (err error) {
	if s.stream, err = openBucket(ctx, s.opts.Broker); err != nil {
		return err
	}
	// The newest revision may be a deletion whose tombstone is gone. The snapshot's must still not go back below it.
	s.loading = s.stream.CachedInfo().State.LastSeq
	if s.mark, err = s.opts.Broker.Mark(streamName); err != nil {
		return err
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.done = cancel, make(chan struct{})
	s.following = s.opts.Broker.Follow(broker.FollowOptions{
		Stream: streamName, Buffer: watchBuffer, Interrupted: s.interrupted,
	})
	loaded := make(chan struct{})
	go s.watch(loaded)
	if err := s.waitLoaded(ctx, loaded); err != nil {
		_ = s.Stop()
		return err
	}
	s.removing.Go(func() { s.removeTombstones(runCtx) })
	return nil
}

// streamConfig is that of a key-value bucket with a history of 1, as other clients of the broker make it.
func streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: streamName, Description: "lapwing definitions", Subjects: []string{subjectPrefix + ">"},
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1, Duplicates: 2 * time.Minute,
		AllowRollup: true, DenyDelete: true, AllowDirect: true,
	}
}

// openBucket makes the bucket, unless it exists.
func openBucket(ctx context.Context, b *broker.Broker) (jetstream.Stream, error) {
	stream, err := b.OpenStream(ctx, streamConfig())
	if err != nil {
		return nil, fmt.Errorf("open config bucket: %w", err)
	}
	return stream, nil
}

func (s *Store) interrupted(err error) {
	s.rare.Warn("following the definitions is interrupted; it goes on by itself", "", "err", err)
}

const (
	// loadPause is how long the initial load may bring no definition before it counts as stuck.
	loadPause = time.Minute
	// loadPoll is the pause between two questions for the newest definition during the initial load.
	loadPoll = time.Second
	// watchBuffer is how many definitions may wait for the watcher.
	watchBuffer = 256
)

// waitLoaded waits for the end of the initial load, for as long as definitions arrive. Then it has the watcher close
// the load. The end is the newest definition that the bucket's leader has: the own copy may be behind.
func (s *Store) waitLoaded(ctx context.Context, loaded chan<- struct{}) error {
	begin, reached := time.Now(), uint64(0)
	for {
		askCtx, cancel := context.WithTimeout(ctx, loadPoll)
		newest, err := s.opts.Broker.Newest(askCtx, streamName, subjectPrefix+">")
		if err == nil {
			err = s.reach(askCtx, newest)
		}
		cancel()
		if err == nil {
			close(loaded)
			return s.reach(ctx, max(newest, s.loading))
		}
		if now := s.Snapshot().Revision(); now > reached {
			begin, reached = time.Now(), now
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("load config: %w", ctx.Err())
		case time.Since(begin) > loadPause:
			return fmt.Errorf("load config: no definition came from the broker for %s (newest revision %d): %w",
				loadPause, reached, err)
		}
		select {
		case <-askCtx.Done():
		case <-time.After(loadPoll):
		}
	}
}

// Stop ends the watch. The last snapshot stays readable.
func (s *Store) Stop() error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.following.Stop()
	<-s.done
	s.removing.Wait()
	s.stop = nil
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
// swapped once per burst and not once per agent. The initial load ends when loaded is closed.
func (s *Store) watch(loaded <-chan struct{}) {
	defer close(s.done)
	for {
		select {
		case first := <-s.following.Messages:
			s.apply(s.gather(first), false)
		case <-loaded:
			s.apply(nil, true)
			loaded = nil
		case <-s.following.Done:
			return
		}
	}
}

// gather returns all messages that wait.
func (s *Store) gather(first broker.Message) []broker.Message {
	waiting := []broker.Message{first}
	for len(waiting) < 4096 {
		select {
		case m := <-s.following.Messages:
			waiting = append(waiting, m)
		default:
			return waiting
		}
	}
	return waiting
}

// stored is the newest message of a key.
type stored struct {
	revision uint64
	written  int64  // Unix milliseconds
	deleted  bool   // it is a tombstone
	raw      []byte // of a secret, and of a definition that cannot be decoded
}

// keyed is a key and what the bucket has for it.
type keyed struct {
	key string
	stored
}

// apply swaps in a snapshot with the messages and calls the listeners. loaded says that the initial load ends with
// them.
func (s *Store) apply(messages []broker.Message, loaded bool) {
	old := s.snapshot.Load()
	next := &Snapshot{revision: old.revision, trees: append([]*iradix.Tree[any](nil), old.trees...)}
	txns := make([]*iradix.Txn[any], len(next.trees))
	var changes []Change
	news := make([]keyed, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		next.revision = max(next.revision, m.Seq)
		n := keyed{key: strings.TrimPrefix(m.Subject, subjectPrefix)}
		n.revision, n.written, n.deleted = m.Seq, m.Time.UnixMilli(), m.Header.Get(operationHeader) != ""
		if n.deleted {
			s.tombstones.add(tombstone{key: n.key, revision: m.Seq, made: m.Time})
		}
		c, change := s.applyTo(next, txns, &n, m.Data)
		news = append(news, n)
		if change {
			changes = append(changes, c)
		}
	}
	for id, txn := range txns {
		if txn != nil {
			next.trees[id] = txn.Commit()
			s.metrics.objects.WithLabelValues(kinds[id].name).Set(float64(next.trees[id].Len()))
		}
	}
	s.metrics.changes.Add(float64(len(changes)))
	if loaded {
		s.complete, next.revision = true, max(next.revision, s.loading)
	}
	s.swap(next, news, changes)
}

// applyTo applies the newest value of a key. It returns false if that is no definition, or cannot be decoded.
func (s *Store) applyTo(next *Snapshot, txns []*iradix.Txn[any], n *keyed, value []byte) (c Change, ok bool) {
	kind, namespace, name, err := parseBucketKey(n.key)
	switch {
	case err != nil:
		s.unusable(n, value, err)
		return c, false
	case kind == secretKind:
		n.raw = value
		return c, false
	}
	id := kindByName(kind)
	if id < 0 {
		s.unusable(n, value, fmt.Errorf("unknown kind %q", kind))
		return c, false
	}
	if txns[id] == nil {
		txns[id] = next.trees[id].Txn()
	}
	if n.deleted {
		txns[id].Delete(treeKey(namespace, name))
	} else {
		obj, err := kinds[id].decode(value)
		if err != nil {
			s.unusable(n, value, err)
			return c, false
		}
		txns[id].Insert(treeKey(namespace, name), obj)
	}
	return Change{Kind: kind, Namespace: namespace, Name: name, Deleted: n.deleted, Revision: n.revision}, true
}

// swap makes a snapshot the newest, calls the listeners, and then releases the writers that wait for it. Releasing
// writers first would not help a listener that waits for a writer: the listeners run on the goroutine that brings the
// next write.
func (s *Store) swap(next *Snapshot, news []keyed, changes []Change) {
	s.mu.Lock()
	for _, n := range news {
		s.keep(n)
	}
	next.digest = s.digest
	s.snapshot.Store(next)
	listeners := make([]func(Change), 0, len(s.listeners))
	for id := range s.nextID {
		if f, ok := s.listeners[id]; ok {
			listeners = append(listeners, f)
		}
	}
	s.mu.Unlock()
	if s.complete {
		s.mark.Holds(next.revision, s.live) // before the writers return: an acknowledged write must be counted
	}
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

// keep notes what the bucket has for a key. The caller holds mu.
func (s *Store) keep(n keyed) {
	old, ok := s.stored[n.key]
	if ok && !old.deleted {
		s.live--
		s.digest -= old.sum(n.key)
	}
	if !n.deleted {
		s.live++
		s.digest += n.sum(n.key)
	}
	s.stored[n.key] = n.stored
}

// sum is a key's share of the digest.
func (st stored) sum(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	h.Write(binary.BigEndian.AppendUint64(nil, st.revision))
	return h.Sum64()
}

// forget drops what is known of a tombstone that is not in the bucket any more.
func (s *Store) forget(t tombstone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored[t.key].revision == t.revision {
		delete(s.stored, t.key)
	}
}

func (s *Store) unusable(n *keyed, value []byte, err error) {
	n.raw = value
	s.metrics.unusable.Inc()
	s.log.Error("stored definition cannot be used", "key", n.key, "err", err)
}

// WaitRevision returns when the snapshot is at a revision and the listeners have been called with it.
func (s *Store) WaitRevision(ctx context.Context, revision uint64) error {
	return s.reach(ctx, revision)
}

// CatchUp returns when the snapshot has all definitions that the bucket had at the call. In a cluster the own copy may
// be behind: a write that depends on what the snapshot has should catch up first.
func (s *Store) CatchUp(ctx context.Context) error {
	if s.opts.Broker.Alone() {
		return nil // writes return when the snapshot has them
	}
	newest, err := s.opts.Broker.Newest(ctx, streamName, subjectPrefix+">")
	if err != nil {
		return err
	}
	return s.reach(ctx, newest)
}

// Shared returns when the live peers have what the snapshot has. A writer that was refused because of the snapshot, and
// reads next from any peer, then finds the reason.
func (s *Store) Shared(ctx context.Context) error {
	if s.opts.WaitPeers == nil {
		return nil
	}
	return s.opts.WaitPeers(ctx, s.Snapshot().Revision())
}

// reach returns when the snapshot is at the revision and the listeners have been called with it.
func (s *Store) reach(ctx context.Context, revision uint64) error {
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
