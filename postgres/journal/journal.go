// Package journal keeps on disk what the fold did to each pair, until it is in PostgreSQL.
//
// A Journal is a follower of the fold. Package postgres reads it with a Reader and copies it into the database; it
// trims what the database has. The journal never blocks the fold: if the disk takes nothing it drops changes, and if it
// is full it drops the oldest. Frames say where each begins, so a reader sees every gap.
//
// The changes cannot be read from the event log later: they have the state behind each event, which only the fold knows.
// A crash loses nothing. The state is stored only up to the message whose changes are synced here (Kept), so a replay
// of the log returns the changes that are not.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Options configures a Journal. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// Dir has the files. It is created if it is missing. Required.
	Dir string
	// Streams are the ids of the partitions' streams. Required.
	Streams []string
	// MaxBytes bounds the files. Above it the oldest are removed, whatever they have.
	MaxBytes int64
	// MinFree is the free space of the disk below which the oldest files are removed too, in bytes.
	MinFree uint64
	// Keep is how long changes stay that PostgreSQL has: after a fail-over it may have less.
	Keep time.Duration
	// Delay is the time between two writes to the disk.
	Delay time.Duration
	// MaxPending bounds the changes that wait for the disk, in bytes over all partitions. Further ones are dropped.
	MaxPending int64
	// FreeSpace returns the free bytes of the disk. Default: those below Dir.
	FreeSpace  func() (uint64, error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings. Dir and Streams have none.
func DefaultOptions() Options {
	return Options{
		MaxBytes: 8 << 30, MinFree: 1 << 30, Keep: 10 * time.Minute, Delay: 200 * time.Millisecond, MaxPending: 64 << 20,
	}
}

// Stream returns the number that frames and positions have for a stream's id.
func Stream(id string) uint64 { return xxhash.Sum64String(id) }

// Journal keeps the changes. Follow is called by the fold, the rest by package postgres.
type Journal struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log
	metrics metrics
	parts   []*partition
	pending atomic.Int64 // bytes of all partitions
	files   files
	growth  growth
	failure failure
	current atomic.Pointer[time.Time]

	// unwritten is what the present write has. It belongs to the goroutine of run.
	unwritten struct {
		since   time.Time // before it was gathered
		bytes   []byte
		frames  []Frame
		pending int64 // bytes of the entries
		spare   []byte
	}

	position func(partition int) uint64 // set by Connect
	loaded   func(partition int) uint64
	on       atomic.Bool
	late     atomic.Bool // it was switched on after the start

	lifecycle sync.Mutex // guards the fields below
	unopened  bool       // the files could not be opened
	started   bool
	stopped   bool
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// partition has the changes of a partition that are not on disk yet.
type partition struct {
	id     int
	stream uint64
	safe   atomic.Uint64 // the newest message that is synced

	mu     sync.Mutex // guards the fields below
	begun  bool       // from is known
	from   uint64     // the newest message before buffer
	seq    uint64     // the message of the newest change
	buffer []byte     // encoded entries
	whole  extent     // of the messages before seq
	all    extent
}

// extent is a part of a buffer.
type extent struct {
	bytes, count   int
	oldest, newest int64
}

// Open opens the journal of a directory. It cuts off a frame that a crash left torn. If the files cannot be opened, the
// log has the error, and SwitchOn tries again: a backend without PostgreSQL needs none.
func Open(opts Options) (*Journal, error) {
	if opts.Dir == "" || len(opts.Streams) == 0 {
		return nil, errors.New("journal: Dir and Streams are required")
	}
	if opts.MaxBytes < 0 || opts.Keep < 0 || opts.Delay < 0 || opts.MaxPending < 0 {
		return nil, errors.New("journal: MaxBytes, Keep, Delay and MaxPending must not be negative")
	}
	opts.complete()
	j := &Journal{opts: opts, log: opts.Logger.With("component", "postgres")}
	j.rare = rarelog.New(j.log)
	now := time.Now()
	j.current.Store(&now)
	for i, id := range opts.Streams {
		j.parts = append(j.parts, &partition{id: i, stream: Stream(id)})
	}
	if err := j.files.open(opts.Dir, opts.MaxBytes, j.parts); err != nil {
		j.unopened = true
		j.log.Error("the journal for PostgreSQL cannot be opened", "dir", opts.Dir, "err", err)
	}
	j.metrics = newMetrics(opts.Registerer, j)
	return j, nil
}

func (o *Options) complete() {
	defaults := DefaultOptions()
	if o.MaxBytes == 0 {
		o.MaxBytes = defaults.MaxBytes
	}
	if o.MinFree == 0 {
		o.MinFree = defaults.MinFree
	}
	if o.Keep == 0 {
		o.Keep = defaults.Keep
	}
	if o.Delay == 0 {
		o.Delay = defaults.Delay
	}
	if o.MaxPending == 0 {
		o.MaxPending = defaults.MaxPending
	}
	if o.FreeSpace == nil {
		dir := o.Dir
		o.FreeSpace = func() (uint64, error) { return eventlog.FreeSpace(dir) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Connect names the fold and the state: position returns the newest message of a partition that the fold has passed on
// as a whole, 0 for none since the start, and loaded the message behind which the fold began. The call comes before Start.
func (j *Journal) Connect(position, loaded func(partition int) uint64) {
	j.position, j.loaded = position, loaded
}

// SwitchOn has the journal keep changes. Before Start it keeps all that the fold's replay returns; later it begins with
// the next messages.
func (j *Journal) SwitchOn() error {
	j.lifecycle.Lock()
	defer j.lifecycle.Unlock()
	if j.unopened {
		if err := j.files.open(j.opts.Dir, j.opts.MaxBytes, j.parts); err != nil {
			return fmt.Errorf("open the journal: %w", err)
		}
		j.unopened = false
	}
	if !j.on.Load() {
		j.late.Store(j.started)
		j.on.Store(true)
	}
	return nil
}

// SwitchOff has the journal keep nothing more. What it has on disk stays for a day.
func (j *Journal) SwitchOff() {
	j.lifecycle.Lock()
	defer j.lifecycle.Unlock()
	if !j.on.Swap(false) {
		return
	}
	for _, p := range j.parts {
		p.mu.Lock()
		j.pending.Add(-int64(len(p.buffer)))
		p.buffer, p.whole, p.all, p.begun = nil, extent{}, extent{}, false
		p.mu.Unlock()
	}
}

// keepUnused is how long files stay while the journal is switched off.
const keepUnused = 24 * time.Hour

// Start begins to write to the disk. It must come before the fold's start, and Stop after the fold's end.
func (j *Journal) Start(context.Context) error {
	j.lifecycle.Lock()
	defer j.lifecycle.Unlock()
	if j.started || j.stopped || j.position == nil || j.loaded == nil {
		return errors.New("start journal: started or stopped before, or not connected")
	}
	j.started = true
	ctx, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	j.done.Go(func() { j.run(ctx) })
	return nil
}

// Stop writes what is left and closes the files.
func (j *Journal) Stop() error {
	j.lifecycle.Lock()
	defer j.lifecycle.Unlock()
	if j.stopped {
		return nil
	}
	j.stopped = true
	var err error
	if j.started {
		j.cancel()
		j.done.Wait()
		err = j.flush()
	}
	return errors.Join(err, j.files.close())
}

func (j *Journal) run(ctx context.Context) {
	tick := time.NewTicker(j.opts.Delay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := j.flush(); err != nil {
			j.metrics.failures.Inc()
			j.rare.Error("the journal for PostgreSQL was not written and will be tried again", j.opts.Dir, "err", err)
		}
		j.bound()
		_, owed := j.files.usage()
		j.growth.note(time.Now(), owed)
	}
}

// Name is part of fold.Follower.
func (j *Journal) Name() string { return "postgres" }

// Follow is part of fold.Follower.
func (j *Journal) Follow(a *state.Applied) {
	if !j.on.Load() {
		return
	}
	p := j.parts[a.Partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if !j.begins(p, a.Seq) || a.Seq <= p.from { // the journal has it from an earlier process
		return
	}
	if a.Seq != p.seq {
		p.whole, p.seq = p.all, a.Seq
	}
	if j.pending.Load() > j.opts.MaxPending {
		j.drop(p)
		return
	}
	n := len(p.buffer)
	p.buffer = appendEntry(p.buffer, a)
	p.all.add(len(p.buffer)-n, a.Received)
	j.pending.Add(int64(len(p.buffer) - n))
}

func (e *extent) add(bytes int, received int64) {
	if e.count == 0 {
		e.oldest = received
	}
	e.newest = received
	e.bytes += bytes
	e.count++
}

// begins finds where the journal of a partition goes on, behind the message that the fold has passed on or is about to.
// The caller holds mu.
func (j *Journal) begins(p *partition, message uint64) bool {
	switch {
	case p.begun:
		return true
	case !j.on.Load():
		return false
	case j.late.Load():
		p.from = message
	default:
		p.from = j.loaded(p.id)
	}
	// What the journal has behind that was folded before: the replay returns it again.
	p.from = max(p.from, j.files.end(p.id, p.stream))
	p.safe.Store(p.from)
	p.begun = true
	return true
}

// drop gives up the changes that wait, up to the present message: the next frame begins behind it, which readers see as
// a gap. The caller holds mu.
func (j *Journal) drop(p *partition) {
	j.metrics.dropped.Add(float64(p.all.count + 1))
	j.failure.dropping.Store(true)
	j.rare.Error("changes are missing in PostgreSQL: the disk of the journal takes them too slowly", j.opts.Dir, "partition", p.id)
	j.pending.Add(-int64(len(p.buffer)))
	p.buffer, p.whole, p.all = p.buffer[:0], extent{}, extent{}
	p.from = p.seq
}

// Kept returns the first message that the fold has passed on and whose changes are not synced; 0 for none. See
// state.Options.Kept.
func (j *Journal) Kept(partition int) uint64 {
	p := j.parts[partition]
	p.mu.Lock()
	begun := p.begun
	p.mu.Unlock()
	if safe := p.safe.Load(); begun && j.position(partition) > safe {
		return safe + 1
	}
	return 0
}

// take takes the changes of whole messages from a partition, as a frame; false if there are none.
func (j *Journal) take(p *partition, spare []byte) (f Frame, entries []byte, ok bool) {
	passed := j.position(p.id) // before the lock: what is whole stays whole
	p.mu.Lock()
	defer p.mu.Unlock()
	if passed == 0 || !j.begins(p, passed) {
		return Frame{}, nil, false
	}
	part, last := p.all, passed
	if passed < p.seq { // the newest message is not whole yet
		part, last = p.whole, p.seq-1
	}
	if last <= p.from {
		return Frame{}, nil, false
	}
	f = Frame{
		Partition: p.id, Stream: p.stream, From: p.from, Last: last,
		Oldest: part.oldest, Newest: part.newest, Count: part.count,
	}
	entries, p.buffer = p.buffer[:part.bytes], append(spare[:0], p.buffer[part.bytes:]...)
	p.whole, p.all = extent{}, extent{bytes: len(p.buffer), count: p.all.count - part.count, oldest: p.all.newest, newest: p.all.newest}
	p.from = last
	return f, entries, true
}

// Current returns a time. All that the fold had passed on before it is synced, or dropped.
func (j *Journal) Current() time.Time { return *j.current.Load() }

// flush writes the changes of whole messages, and notes whether it could.
func (j *Journal) flush() error {
	u := &j.unwritten
	if len(u.bytes) == 0 {
		u.since = time.Now()
		j.gather()
	}
	since := u.since
	err := j.write()
	if err == nil {
		j.current.Store(&since)
	}
	j.failure.note(err)
	return err
}

// write writes what was gathered, and syncs it. If that fails, the same bytes are written again.
func (j *Journal) write() error {
	u := &j.unwritten
	if len(u.bytes) == 0 {
		return nil
	}
	for _, id := range j.files.gone() {
		j.missing(id)
	}
	if err := j.files.write(u.bytes, u.frames); err != nil {
		return err
	}
	for _, f := range u.frames {
		j.parts[f.Partition].safe.Store(f.Last)
		j.metrics.written.Add(float64(f.Count))
	}
	j.metrics.bytes.Add(float64(len(u.bytes)))
	j.pending.Add(-u.pending)
	u.bytes, u.frames, u.pending = u.bytes[:0], u.frames[:0], 0
	return nil
}

// missing notes that a file is gone which the journal did not remove.
func (j *Journal) missing(id uint64) {
	j.metrics.damaged.Inc()
	j.rare.Error("a file of the journal for PostgreSQL is gone: changes are missing if PostgreSQL does not have them",
		j.opts.Dir, "file", j.files.path(id))
}

// gather encodes what all partitions have.
func (j *Journal) gather() {
	u := &j.unwritten
	for _, p := range j.parts {
		f, entries, ok := j.take(p, u.spare)
		if !ok {
			continue
		}
		u.bytes = f.append(u.bytes, entries)
		u.frames = append(u.frames, f)
		u.pending += int64(len(entries))
		u.spare = entries
	}
	if cap(u.bytes) > maxSpare && len(u.bytes) < maxSpare/4 || cap(u.spare) > maxSpare {
		u.bytes, u.spare = append([]byte(nil), u.bytes...), nil
	}
}

// maxSpare bounds the buffers that are kept for the next write, in bytes.
const maxSpare = 8 << 20

// bound removes the oldest files above the bounds.
func (j *Journal) bound() {
	if !j.on.Load() {
		if err := j.files.removeBefore(time.Now().Add(-keepUnused)); err != nil {
			j.rare.Error("an old file of the journal for PostgreSQL was not removed", j.opts.Dir, "err", err)
		}
	}
	for {
		over := j.files.size() > j.opts.MaxBytes
		if !over {
			free, err := j.opts.FreeSpace()
			over = err == nil && free < j.opts.MinFree
		}
		if !over {
			return
		}
		entries, ok, err := j.files.removeOldest()
		if err != nil {
			j.rare.Error("an old file of the journal for PostgreSQL was not removed", j.opts.Dir, "err", err)
		}
		if !ok {
			return
		}
		if entries > 0 {
			j.metrics.dropped.Add(float64(entries))
			j.rare.Error("the oldest changes are removed that PostgreSQL does not have: the journal is full", j.opts.Dir)
		}
	}
}

// Trim says up to which message PostgreSQL has each partition. Files are removed that it does not need any more.
func (j *Journal) Trim(has []uint64) error { return j.files.trim(has, j.opts.Keep) }

// Streams returns the numbers of the partitions' streams.
func (j *Journal) Streams() []uint64 {
	streams := make([]uint64, len(j.parts))
	for i, p := range j.parts {
		streams[i] = p.stream
	}
	return streams
}
