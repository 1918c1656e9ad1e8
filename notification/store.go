package notification

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// What is stored:
//
// 	'w' 'g' first number  a generation: when it began, when it was last written, its bytes, its last number
// 	'w' 'r' number        a notification, in JSON
//
// Numbers are big endian, 8 bytes. A generation takes notifications until it has its share of the bytes or of the
// time. So age and size are bounded by removing the oldest generation, which costs one range delete. Readers that want
// a span of time skip the other generations. Numbers go up even if all notifications were removed: the newest
// generation stays.

// Prefix begins all keys. A member that copies another one's database removes them: notifications are each member's
// own.
const Prefix = 'w'

// Options wires a Store. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// DB keeps the notifications under keys that begin with Prefix. Required.
	DB *pebble.DB
	// MaxAge is how long notifications are kept.
	MaxAge time.Duration
	// MaxBytes bounds the notifications, before the database compresses them.
	MaxBytes int64
	// Queue is how many notifications wait to be written; more are dropped.
	Queue int
	// Delay is how long notifications wait, and SyncDelay for how long a crash may lose what is written.
	Delay, SyncDelay time.Duration
	// Now is the clock. Default time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// sizeShares and ageShares are how many generations MaxBytes and MaxAge are divided into.
const sizeShares, ageShares = 32, 32

// Store keeps notifications. Its methods are safe for concurrent use.
type Store struct {
	opts    Options
	log     *slog.Logger
	metrics metrics

	queueMu sync.Mutex // guards queue; nothing else happens under it
	queue   []*Notification
	full    chan struct{} // signals the writer that the queue is half full

	writeMu     sync.Mutex   // guards the fields below; taken before queueMu
	generations []generation // at least one
	durable     uint64       // the newest number that no crash can lose
	failing     bool
	unsynced    time.Time // since when a crash would lose notifications; zero if it would lose none

	lifecycle sync.Mutex // guards the fields below
	started   bool
	stopped   bool
	cancel    context.CancelFunc
	done      chan struct{}
}

// generation is the notifications of the numbers first to last. It is empty if last is less.
type generation struct {
	first, last   uint64
	began, newest int64 // Unix milliseconds
	bytes         int64
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		MaxAge: 90 * 24 * time.Hour, MaxBytes: 512 << 20, Queue: 8192, Delay: 250 * time.Millisecond, SyncDelay: 2 * time.Second,
	}
}

// New checks the options and loads the stored generations.
func New(opts Options) (*Store, error) {
	if opts.DB == nil {
		return nil, errors.New("notification: database is required")
	}
	if opts.MaxAge < 0 || opts.MaxBytes < 0 || opts.Queue < 0 || opts.Delay < 0 || opts.SyncDelay < 0 {
		return nil, errors.New("notification: MaxAge, MaxBytes, Queue, Delay and SyncDelay must not be negative")
	}
	defaults := DefaultOptions()
	opts.MaxAge = cmp.Or(opts.MaxAge, defaults.MaxAge)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaults.MaxBytes)
	opts.Queue = cmp.Or(opts.Queue, defaults.Queue)
	opts.Delay = cmp.Or(opts.Delay, defaults.Delay)
	opts.SyncDelay = cmp.Or(opts.SyncDelay, defaults.SyncDelay)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		opts: opts, log: opts.Logger.With("component", "notification"), full: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	s.durable = s.present().last
	s.metrics = newMetrics(opts.Registerer, s)
	return s, nil
}

// Start begins to write what is recorded. It does not keep the context.
func (s *Store) Start(context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.started || s.stopped {
		return errors.New("start notification: started or stopped before")
	}
	s.started = true
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.write(ctx)
	}()
	return nil
}

// Stop writes the queue. What is recorded later is lost.
func (s *Store) Stop() error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	if s.started {
		s.cancel()
		<-s.done
	}
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return errors.Join(s.flush(), s.sync(0))
}

func (s *Store) write(ctx context.Context) {
	tick := time.NewTicker(s.opts.Delay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.full:
		case <-ctx.Done():
			return
		}
		s.writeMu.Lock()
		err := errors.Join(s.flush(), s.sync(s.opts.SyncDelay), s.trim())
		if err != nil && !s.failing {
			s.log.Error("notifications were not kept", "err", err)
		}
		s.failing = err != nil
		s.writeMu.Unlock()
	}
}

// sync makes writes durable that are as old as age, and with them those of other parts of the database. The caller
// holds writeMu.
func (s *Store) sync(age time.Duration) error {
	if s.unsynced.IsZero() || s.opts.Now().Sub(s.unsynced) < age {
		return nil
	}
	if err := s.opts.DB.LogData(nil, pebble.Sync); err != nil {
		return fmt.Errorf("sync notifications: %w", err)
	}
	s.unsynced, s.durable = time.Time{}, s.present().last
	return nil
}

// Record takes a notification. It never blocks, and owns the notification afterwards.
func (s *Store) Record(n *Notification) {
	n.clamp()
	s.queueMu.Lock()
	waiting := len(s.queue)
	if waiting < s.opts.Queue {
		s.queue = append(s.queue, n)
	}
	s.queueMu.Unlock()
	switch {
	case waiting >= s.opts.Queue:
		s.metrics.dropped.Inc()
	case waiting == s.opts.Queue/2:
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
}

// flush writes what was recorded. If that fails it is lost and counted. The caller holds writeMu.
func (s *Store) flush() error {
	s.queueMu.Lock()
	queue := s.queue
	s.queue = nil
	s.queueMu.Unlock()
	if len(queue) == 0 {
		return nil
	}
	g := *s.present()
	err := s.put(&g, queue)
	if err != nil {
		s.metrics.dropped.Add(float64(len(queue)))
		return fmt.Errorf("write notifications: %w", err)
	}
	s.metrics.written.Add(float64(len(queue)))
	s.metrics.bytes.Add(float64(g.bytes - s.present().bytes))
	*s.present() = g
	if s.unsynced.IsZero() {
		s.unsynced = s.opts.Now()
	}
	return nil
}

// put adds notifications to a generation.
func (s *Store) put(g *generation, queue []*Notification) error {
	b := s.opts.DB.NewBatch()
	defer b.Close()
	for _, n := range queue {
		g.last++
		n.Number = g.last
		value, err := json.Marshal(n)
		if err != nil {
			return err
		}
		if err := b.Set(recordKey(n.Number), value, nil); err != nil {
			return err
		}
		g.bytes += int64(len(recordKey(0)) + len(value))
	}
	g.newest = s.opts.Now().UnixMilli()
	if err := b.Set(generationKey(g.first), g.value(), nil); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync)
}

// present returns the generation that takes notifications.
func (s *Store) present() *generation { return &s.generations[len(s.generations)-1] }

// trim starts a generation when the present one has its share, and removes old ones. The caller holds writeMu.
func (s *Store) trim() error {
	now := s.opts.Now().UnixMilli()
	g := s.present()
	if g.bytes >= max(s.opts.MaxBytes/sizeShares, 1) || g.bytes > 0 && now-g.began >= s.opts.MaxAge.Milliseconds()/ageShares {
		next := generation{first: g.last + 1, last: g.last, began: now, newest: now}
		// Stored while it is empty, because the numbers must go on from it.
		if err := s.opts.DB.Set(generationKey(next.first), next.value(), pebble.NoSync); err != nil {
			return fmt.Errorf("begin generation of notifications: %w", err)
		}
		s.generations = append(s.generations, next)
	}
	total := int64(0)
	for _, g := range s.generations {
		total += g.bytes
	}
	for len(s.generations) > 1 {
		g := s.generations[0]
		if total <= s.opts.MaxBytes && now-g.newest < s.opts.MaxAge.Milliseconds() {
			return nil
		}
		if err := s.remove(g); err != nil {
			return fmt.Errorf("remove old notifications: %w", err)
		}
		total -= g.bytes
		s.metrics.bytes.Sub(float64(g.bytes))
		s.generations = s.generations[1:]
	}
	return nil
}

func (s *Store) remove(g generation) error {
	b := s.opts.DB.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(recordKey(g.first), recordKey(g.last+1), nil); err != nil {
		return err
	}
	if err := b.Delete(generationKey(g.first), nil); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync)
}

func generationKey(first uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{Prefix, 'g'}, first)
}
func recordKey(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{Prefix, 'r'}, number)
}

func numberOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[2:]) }

const generationVersion = 1

var errMalformed = errors.New("malformed generation")

func (g *generation) value() []byte {
	b := binary.AppendUvarint([]byte{generationVersion}, g.last)
	for _, v := range [...]int64{g.began, g.newest, g.bytes} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func decodeGeneration(key, value []byte) (generation, error) {
	if len(key) != len(generationKey(0)) || len(value) == 0 {
		return generation{}, errMalformed
	}
	if err := fields.CheckVersion("a generation of notifications", value[0], generationVersion); err != nil {
		return generation{}, err
	}
	g := generation{first: numberOf(key)}
	last, n := binary.Uvarint(value[1:])
	if n <= 0 || g.first == 0 || last < g.first-1 {
		return generation{}, errMalformed
	}
	g.last, value = last, value[1+n:]
	for _, p := range [...]*int64{&g.began, &g.newest, &g.bytes} {
		v, n := binary.Varint(value)
		if n <= 0 {
			return generation{}, errMalformed
		}
		*p, value = v, value[n:]
	}
	return g, nil
}

// load reads the generations, and begins the first one of a new database.
func (s *Store) load() (err error) {
	it, err := s.opts.DB.NewIter(&pebble.IterOptions{LowerBound: []byte{Prefix, 'g'}, UpperBound: []byte{Prefix, 'g' + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		g, err := decodeGeneration(it.Key(), value)
		if err != nil {
			return fmt.Errorf("%w: key %x", err, it.Key())
		}
		s.generations = append(s.generations, g)
	}
	if len(s.generations) == 0 {
		now := s.opts.Now().UnixMilli()
		s.generations = []generation{{first: 1, began: now, newest: now}}
	}
	return it.Error()
}
