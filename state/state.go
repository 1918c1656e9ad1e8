// Package state folds the event log into the state of every check of every entity.
//
// Package fold reads every partition of the log in order, and its Folder applies each event to the state of its
// (entity, check) pair: history, occurrences, watermark, flapping, last OK. The result depends on the log alone, so
// all backends agree without locks. The Folder returns each event in its new state (Applied). This fold is the event's
// hot path from the log on. The API, the intake and the deadlines read the state; routing and handling are left to
// package fold and the parts behind it.
//
// The state is in memory. Changes are written to Pebble about a minute later (WriteDelay), oldest first, together with the log
// position up to which they are complete. A restart loads them and replays the log from there. A pair has the position
// of its newest event, so a replayed event never counts twice.
package state

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// ErrNotFound is returned for an event that does not exist.
var ErrNotFound = errors.New("not found")

// Options configures a State. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	Log *eventlog.Log
	DB  *pebble.DB
	// Late reports whether a batch counts as late at its message: its origin had lost its place in the cluster in the
	// meantime. Events of late batches do not replace newer ones. Default: none is late.
	Late func(partition int, seq uint64, origin string, roster uint64) bool
	// Entity finds an entity's configuration, to complete the events that are handed out. It must be quick: a search asks
	// while it holds up the fold. Required.
	Entity func(namespace, name string) (*resource.EntityConfig, bool)
	// EntityChanges has changed called after each change of what Entity returns, until stop. Without it each search asks for
	// the configurations again, which is much of what it does.
	EntityChanges func(changed func(namespace, name string)) (stop func())
	// Silences returns what names the silences that apply to an event now, or nil while there are none: events that are read,
	// or searched for, say what holds now and not what held when they came. It must be quick too. Without it they say that.
	Silences func() func(*resource.Silenceable) []string
	// Arm is called when a pair's deadline is set or moved forward. The id is for Overdue and Due.
	Arm func(id uint64, due int64)
	// Trim returns below which message this backend may trim a partition's log, when it has stored everything below next;
	// false to leave the log as it is. Default: below next.
	Trim func(partition int, next uint64) (below uint64, ok bool)
	// Kept returns the first folded message whose changes a follower of the fold has not kept yet, 0 for none: a replay
	// after a crash returns them again. It must not block. Default: followers need nothing again.
	Kept func(partition int) uint64
	// WriteDelay is how long a change waits for others of the same check before it is written.
	WriteDelay time.Duration
	// MaxDirty bounds the bodies that wait to be written, in bytes over all partitions.
	MaxDirty uint64
	// MaxReplay bounds how much of the log a restart has to replay because of what waits, in bytes over all partitions.
	MaxReplay uint64
	// KeepLog is how much of the log before the stored position is kept, in bytes over all partitions.
	KeepLog uint64
	// HistoryAge is how long the changes of a check's state are kept. 0 keeps none.
	HistoryAge time.Duration
	// HistoryLimit bounds the changes that are kept of a check.
	HistoryLimit int
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		WriteDelay: time.Minute, MaxDirty: 512 << 20, MaxReplay: 1 << 30, KeepLog: 1 << 30,
		HistoryAge: 90 * 24 * time.Hour, HistoryLimit: 1000,
	}
}

// State is the fold of the whole log.
type State struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log
	metrics metrics
	parts   []*partition
	share   share
	tails   tailSet

	scanOrdered int // the constant; tests change it
	writeBatch  int // likewise
	unwatch     func()
	learned     chan struct{} // closed when the stored events have been read
	live        chan struct{} // closed by GoLive
	loaded      atomic.Uint64 // keys of the database that Load has read

	cancel   context.CancelFunc
	done     sync.WaitGroup
	database *databaseCollector
}

// share is what one partition has of the bounds in Options, which are for all partitions together.
type share struct {
	maxDirty           int
	maxReplay, keepLog uint64
}

// New checks the options. Then Load reads the stored state, package fold replays the rest of the log and calls GoLive.
func New(opts Options) (*State, error) {
	if opts.Log == nil || opts.DB == nil || opts.Entity == nil {
		return nil, errors.New("state: log, database and entity lookup are required")
	}
	defaults := DefaultOptions()
	opts.WriteDelay = cmp.Or(opts.WriteDelay, defaults.WriteDelay)
	opts.MaxDirty = cmp.Or(opts.MaxDirty, defaults.MaxDirty)
	opts.MaxReplay = cmp.Or(opts.MaxReplay, defaults.MaxReplay)
	opts.KeepLog = cmp.Or(opts.KeepLog, defaults.KeepLog)
	opts.HistoryLimit = cmp.Or(opts.HistoryLimit, defaults.HistoryLimit)
	if opts.Arm == nil {
		opts.Arm = func(uint64, int64) {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &State{opts: opts, log: opts.Logger.With("component", "state"), scanOrdered: scanOrdered, writeBatch: writeBatch,
		learned: make(chan struct{}), live: make(chan struct{})}
	s.rare = rarelog.New(s.log)
	parts := uint64(opts.Log.Partitions())
	s.share = share{maxDirty: int(opts.MaxDirty / parts), maxReplay: opts.MaxReplay / parts, keepLog: opts.KeepLog / parts}
	for i := range opts.Log.Partitions() {
		s.parts = append(s.parts, newPartition(s, i))
	}
	s.database = &databaseCollector{db: opts.DB}
	s.metrics = newMetrics(opts.Registerer, s)
	return s, nil
}

// Load reads the stored state. The log must then be folded from each Folder's From. It fails with an *OtherStreamError
// if the state is of another log.
func (s *State) Load(context.Context) error {
	var loading sync.WaitGroup
	errs := make([]error, len(s.parts))
	for i, p := range s.parts {
		loading.Go(func() { errs[i] = p.load() })
	}
	loading.Wait()
	return errors.Join(errs...)
}

// GoLive is called when the log is folded up to the end that it had at the start. From then on deadlines count,
// changes are written back, and live streams and searches may begin. No deadline is due before the backend has
// listened for its whole period.
func (s *State) GoLive(listening time.Time) {
	pairs := 0
	for _, p := range s.parts {
		pairs += p.goLive(listening.UnixMilli())
	}
	if s.opts.EntityChanges != nil {
		s.unwatch = s.opts.EntityChanges(s.entityChanged)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() { s.writeBack(ctx) })
	s.done.Go(func() { s.learn(ctx) })
	if s.opts.HistoryAge > 0 {
		s.done.Go(func() { s.trimHistories(ctx) })
	}
	close(s.live)
	s.log.Info("state is up to date with the log", "pairs", pairs, "seconds", time.Since(listening).Seconds())
}

// Live returns a channel that is closed once the state has caught up with the log.
func (s *State) Live() <-chan struct{} { return s.live }

// Folded returns the newest folded message of a partition, and the one from which a restart would replay.
func (s *State) Folded(partition int) (folded, replay uint64) {
	p := s.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.folded, p.synced
}

// LoadedAt returns the newest message of a partition that the stored state had at the start; 0 for none. The replay
// began behind it.
func (s *State) LoadedAt(partition int) uint64 { return s.parts[partition].loaded }

// Loaded returns how many keys of the database Load has read. It grows while Load makes progress.
func (s *State) Loaded() uint64 { return s.loaded.Load() }

// Stop writes all changes that are not stored. Package fold must have stopped.
func (s *State) Stop() error {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.done.Wait()
	s.cancel = nil
	if s.unwatch != nil {
		s.unwatch()
	}
	defer s.database.close()
	s.tails.closeAll()
	var errs []error
	for _, p := range s.parts {
		_, err := p.writeDue(nowMilli() + 1)
		errs = append(errs, err)
		batch := s.opts.DB.NewBatch()
		p.mu.Lock()
		p.lookAtKept()
		errs = append(errs, p.checkpoint(batch))
		p.mu.Unlock()
		errs = append(errs, batch.Commit(pebble.Sync), batch.Close())
	}
	return errors.Join(errs...)
}

// WaitFolded returns once a message of the log has been folded.
func (s *State) WaitFolded(ctx context.Context, partition int, seq uint64) error {
	return s.parts[partition].wait(ctx, seq)
}

func (p *partition) wait(ctx context.Context, seq uint64) error {
	p.mu.Lock()
	if p.folded >= seq {
		p.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	p.waiters = append(p.waiters, foldWaiter{seq, done})
	p.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the fold of message %d of partition %d: %w", seq, p.id, ctx.Err())
	}
}

// goLive arms the deadlines, and returns the number of pairs. No deadline is due before this backend has listened for
// its whole period: an agent that could not be heard has not failed.
func (p *partition) goLive(listening int64) (pairs int) {
	p.fold.Lock()
	defer p.fold.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live, p.listening = true, listening
	for slot := range p.used {
		pr := p.at(slot)
		if pr.flags&pairUsed == 0 || pr.due == 0 {
			continue
		}
		pr.received, pr.due = notFuture(pr.received, pr.due, listening)
		if due := listening + (pr.due - pr.received); due > pr.due {
			pr.due = due
			pr.flags |= pairMoved
		}
		p.state.opts.Arm(p.pairID(slot), pr.due)
	}
	return p.count
}

// load reads a partition's stored state. Values that cannot be read are skipped, counted and logged; only the log's
// position must be readable.
func (p *partition) load() error {
	db := p.state.opts.DB
	pos, closer, err := db.Get(positionKey(p.id))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read position of partition %d: %w", p.id, err)
	}
	next, err := decodePosition(pos)
	_ = closer.Close()
	if err != nil {
		return fmt.Errorf("read position of partition %d: %w", p.id, err)
	}
	p.folded = max(next, 1) - 1
	p.loaded, p.deletions.floor = p.folded, p.folded
	known, err := StoredStream(db, p.id)
	if err != nil {
		return err
	}
	if have := p.state.opts.Log.StreamID(p.id); known != "" && known != have {
		return &OtherStreamError{p.id, known, have}
	}
	if err := p.scan('e', p.loadEntity); err != nil {
		return err
	}
	if err := p.scan('n', p.loadMark); err != nil {
		return err
	}
	if err := p.scan('o', func(_, value []byte) error { return p.origins.load(value) }); err != nil {
		return err
	}
	if known != "" {
		if err := p.scan('g', func(_, value []byte) error { return p.digest.load(value, next) }); err != nil {
			return err
		}
	}
	return p.scan('s', p.loadPair)
}

func (p *partition) scan(kind byte, f func(key, value []byte) error) error {
	prefix := []byte{kind, byte(p.id)}
	it, err := p.state.opts.DB.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: []byte{kind, byte(p.id) + 1}})
	if err != nil {
		return fmt.Errorf("read state of partition %d: %w", p.id, err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		p.state.loaded.Add(1)
		value, err := it.ValueAndErr()
		if err == nil {
			err = f(it.Key()[len(prefix):], value)
		}
		if err != nil {
			p.state.metrics.undecodable.Inc()
			p.state.log.Error("stored state cannot be read and is left out", "partition", p.id, "key", string(it.Key()), "err", err)
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("read state of partition %d: %w", p.id, err)
	}
	return nil
}

func (p *partition) loadEntity(key, value []byte) error {
	namespace, name, ok := strings.Cut(string(key), "\x00")
	pos, n := binary.Uvarint(value)
	if !ok || n <= 0 {
		return errors.New("malformed entity")
	}
	i, _ := p.findEntity(namespace, name, true)
	p.entities[i].pos, p.entities[i].body = pos, append([]byte(nil), value[n:]...)
	return nil
}

func (p *partition) loadPair(key, value []byte) error {
	names := strings.Split(string(key), "\x00")
	if len(names) != 3 {
		return errors.New("malformed key")
	}
	var pr pair
	wide, err := pr.decode(value)
	if err != nil {
		return err
	}
	ent, _ := p.findEntity(names[0], names[1], true)
	slot, _ := p.findPair(ent, p.names.get([]byte(names[2])), true)
	at := p.at(slot)
	pr.entity, pr.check, pr.next = at.entity, at.check, at.next
	*at = pr
	if wide != nil {
		p.wide[slot] = wide
	}
	return nil
}
