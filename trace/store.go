package trace

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// What is stored:
//
// 	't' 'g' generation                                      when it began, when it was last written, its bytes, its last number
// 	't' 'r' generation namespace 0 entity 0 check 0 number  a record: a report on a delivery, in JSON
//
// Numbers are big endian (generation 4 bytes, number 8). Records are only ever added; a reader merges those of one
// delivery. A generation takes records until it has its share of the bytes or of the time. So age and size are bounded
// by removing the oldest generation, which costs one range delete.

// Options wires a Store. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// DB keeps the records under keys that begin with 't'. Required.
	DB *pebble.DB
	// MaxAge is how long records are kept.
	MaxAge time.Duration
	// MaxBytes bounds the records, before the database compresses them.
	MaxBytes int64
	// PerCheck is how many records of one check are kept at least while newer ones push them out, and half of how many there
	// can be in one generation.
	PerCheck int
	// Sample keeps one of so many events that are neither incident nor resolution. 1 keeps all, 0 none.
	Sample int
	// Queue is how many records wait to be written; more are dropped.
	Queue int
	// Delay is how long records wait, and SyncDelay for how long a crash may lose what is written.
	Delay, SyncDelay time.Duration
	// Now is the clock. Default time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	// sizeShares and ageShares are how many generations MaxBytes and MaxAge are divided into.
	sizeShares, ageShares = 16, 8
	// maxRuns bounds the runs in memory.
	maxRuns = 200_000
	// maxOpen bounds the unfinished deliveries in memory.
	maxOpen = 100_000
	// This many repeats of an end are stored whole. After them times between stored repeats double, up to the longest.
	// Repeats that were delivered get more.
	wholeRepeats, wholeDelivered = 3, 20
	firstInterval                = time.Minute
	lastInterval, lastDelivered  = time.Hour, 10 * time.Minute
)

// Store keeps traces. Its methods are safe for concurrent use.
type Store struct {
	opts    Options
	log     *slog.Logger
	metrics metrics
	seed    maphash.Seed

	queueMu sync.Mutex // guards queue; nothing else happens under it
	queue   []*Delivery
	full    chan struct{} // signals the writer that the queue is half full

	writeMu     sync.Mutex // guards the fields below; taken before queueMu
	generations []generation
	number      int64 // of the last record
	counts      map[uint64]int
	runs        map[uint64]*run
	open        map[string]struct{} // IDs of unfinished deliveries that have a record
	failing     bool
	unsynced    time.Time // since when a crash would lose records; zero if it would lose none

	lifecycle sync.Mutex // guards the fields below
	started   bool
	stopped   bool
	cancel    context.CancelFunc
	done      chan struct{}
}

type generation struct {
	id            uint32
	began, newest int64 // Unix milliseconds
	bytes         int64
	number        int64 // of its last record
}

// run is a series of events of a check with the same end in one workflow.
type run struct {
	end     uint64 // a hash of the end
	pair    pairName
	id      string // of the delivery that stands for all repeats that are not stored whole
	began   int64  // when the first event was received
	written int64  // when that delivery was written
	whole   int
	repeats int
	last    int64
	stored  int // how many repeats the database has
}

type pairName struct{ namespace, entity, check string }

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		MaxAge: 7 * 24 * time.Hour, MaxBytes: 256 << 20, PerCheck: 500, Sample: 100, Queue: 8192,
		Delay: 250 * time.Millisecond, SyncDelay: 2 * time.Second,
	}
}

// New checks the options and loads the stored generations.
func New(opts Options) (*Store, error) {
	if opts.DB == nil {
		return nil, errors.New("trace: database is required")
	}
	if opts.MaxAge < 0 || opts.MaxBytes < 0 || opts.PerCheck < 0 || opts.Sample < 0 || opts.Queue < 0 || opts.Delay < 0 ||
		opts.SyncDelay < 0 {
		return nil, errors.New("trace: MaxAge, MaxBytes, PerCheck, Sample, Queue, Delay and SyncDelay must not be negative")
	}
	defaults := DefaultOptions()
	opts.MaxAge = cmp.Or(opts.MaxAge, defaults.MaxAge)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaults.MaxBytes)
	opts.PerCheck = cmp.Or(opts.PerCheck, defaults.PerCheck)
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
		opts: opts, log: opts.Logger.With("component", "trace"), seed: maphash.MakeSeed(), full: make(chan struct{}, 1),
		counts: map[uint64]int{}, runs: map[uint64]*run{}, open: map[string]struct{}{}, done: make(chan struct{}),
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("read traces: %w", err)
	}
	s.metrics = newMetrics(opts.Registerer, s)
	return s, nil
}

// Start begins to write recorded traces. It does not keep the context.
func (s *Store) Start(context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.started || s.stopped {
		return errors.New("start trace: started or stopped before")
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

// Stop writes the queue. Traces that are recorded later are lost.
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
	err := s.flush()
	b := s.newBatch()
	defer b.Close()
	for _, r := range s.runs {
		err = errors.Join(err, s.addRepeats(b, r))
	}
	return errors.Join(err, s.commit(b))
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
		err := errors.Join(s.flush(), s.sync())
		if err != nil && !s.failing {
			s.log.Error("traces were not written", "err", err)
		}
		s.failing = err != nil
		s.writeMu.Unlock()
	}
}

// sync makes earlier writes durable, and with them those of other parts of the database. The caller holds writeMu.
func (s *Store) sync() error {
	if s.unsynced.IsZero() || s.opts.Now().Sub(s.unsynced) < s.opts.SyncDelay {
		return nil
	}
	if err := s.opts.DB.LogData(nil, pebble.Sync); err != nil {
		return fmt.Errorf("sync traces: %w", err)
	}
	s.unsynced = time.Time{}
	return nil
}

// Wants reports whether an event is traced. A caller asks first if a trace would cost it work.
func (s *Store) Wants(event string, incident, resolution bool) bool {
	switch {
	case incident || resolution || s.opts.Sample == 1:
		return true
	case s.opts.Sample == 0:
		return false
	}
	// The hash must be the same in all processes: a delivery may go on after a restart.
	h := uint64(14695981039346656037)
	for i := range len(event) {
		h = (h ^ uint64(event[i])) * 1099511628211
	}
	return (h^h>>32)%uint64(s.opts.Sample) == 0
}

// Record takes a report on a delivery: everything, or only what is new. It never blocks, and owns the delivery
// afterwards.
func (s *Store) Record(d *Delivery) {
	if d.EventID == "" {
		d.EventID = delivery.EventIDOf(d.ID)
	}
	if !s.Wants(d.EventID, d.Incident, d.Resolution) && d.Verdict != Dead && d.Verdict != Failed {
		s.metrics.unsampled.Inc()
		return
	}
	for _, name := range [...]string{d.Namespace, d.Entity, d.Check} {
		if strings.IndexByte(name, 0) >= 0 { // cannot be part of a key
			s.metrics.dropped.Inc()
			return
		}
	}
	d.clamp()
	if d.Updated == 0 {
		d.Updated = s.opts.Now().UnixMilli()
	}
	if d.Received == 0 {
		d.Received = d.Updated
	}
	s.queueMu.Lock()
	n := len(s.queue)
	if n < s.opts.Queue {
		s.queue = append(s.queue, d)
	}
	s.queueMu.Unlock()
	switch {
	case n >= s.opts.Queue:
		s.metrics.dropped.Inc()
	case n == s.opts.Queue/2:
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
}

// flush writes the recorded traces. The caller holds writeMu.
func (s *Store) flush() error {
	s.queueMu.Lock()
	queue := s.queue
	s.queue = nil
	s.queueMu.Unlock()
	s.trim()
	if len(queue) == 0 {
		return nil
	}
	b := s.newBatch()
	defer b.Close()
	for _, d := range queue {
		if err := s.add(b, d); err != nil {
			return err
		}
	}
	return s.commit(b)
}

// batch collects records for the present generation.
type batch struct {
	*pebble.Batch
	bytes   int64
	records int
	full    []pairName // have twice their share
}

func (s *Store) newBatch() *batch { return &batch{Batch: s.opts.DB.NewBatch()} }

// commit writes a batch. If that fails the batch is lost: traces are not worth a retry.
func (s *Store) commit(b *batch) error {
	if b.Empty() {
		return nil
	}
	g := s.present()
	g.bytes += b.bytes
	g.newest = s.opts.Now().UnixMilli()
	g.number = s.number
	err := b.Set(generationKey(g.id), g.value(), nil)
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err != nil {
		s.metrics.dropped.Add(float64(b.records))
		return fmt.Errorf("write traces: %w", err)
	}
	if s.unsynced.IsZero() {
		s.unsynced = s.opts.Now()
	}
	s.metrics.written.Add(float64(b.records))
	s.metrics.bytes.Add(float64(b.bytes))
	for _, pair := range b.full {
		if err := s.trimPair(g.id, pair); err != nil {
			return err
		}
	}
	return nil
}

// add adds a delivery to a batch, unless it only repeats the end of the check's event before it.
func (s *Store) add(b *batch, d *Delivery) error {
	end, ok := s.end(d)
	if !d.Verdict.Final() && len(s.open) < maxOpen {
		s.open[d.ID] = struct{}{}
	} else if _, open := s.open[d.ID]; open {
		// A delivery with earlier records must get its end.
		delete(s.open, d.ID)
		ok = false
	}
	if !ok || len(s.open) >= maxOpen {
		return s.put(b, d)
	}
	whole, longest := wholeRepeats, lastInterval
	if d.Verdict == Delivered {
		whole, longest = wholeDelivered, lastDelivered
	}
	key := s.hash(d.Namespace, d.Entity, d.Check, d.Pipeline, d.Workflow, d.Handler)
	r := s.runs[key]
	switch {
	case r == nil || r.end != end:
		if r != nil {
			if err := s.addRepeats(b, r); err != nil {
				return err
			}
		} else if err := s.makeRoom(b); err != nil {
			return err
		}
		s.runs[key] = &run{
			end: end, pair: pairName{d.Namespace, d.Entity, d.Check}, id: d.ID, began: d.Received,
			written: d.Received, last: d.Received,
		}
	case r.id == d.ID:
	case r.whole >= whole && d.Received-r.written < min(max(r.written-r.began, firstInterval.Milliseconds()), longest.Milliseconds()):
		r.repeats++
		r.last = max(r.last, d.Received)
		s.metrics.repeated.Inc()
		return nil
	default:
		if err := s.addRepeats(b, r); err != nil {
			return err
		}
		r.id, r.written, r.last, r.repeats, r.stored = d.ID, d.Received, d.Received, 0, 0
		r.whole++
	}
	return s.put(b, d)
}

// addRepeats adds the repeats of a run that are not stored yet.
func (s *Store) addRepeats(b *batch, r *run) error {
	if r.repeats == r.stored {
		return nil
	}
	r.stored = r.repeats
	return s.put(b, &Delivery{
		Header:  delivery.Header{ID: r.id, Namespace: r.pair.namespace, Entity: r.pair.entity, Check: r.pair.check},
		Repeats: r.repeats, Last: r.last,
	})
}

// makeRoom drops all runs if there are too many.
func (s *Store) makeRoom(b *batch) error {
	if len(s.runs) < maxRuns {
		return nil
	}
	for _, r := range s.runs {
		if err := s.addRepeats(b, r); err != nil {
			return err
		}
	}
	clear(s.runs)
	return nil
}

// end returns a hash of how a delivery ended. ok is false if it has not ended, or ended after a failed attempt.
func (s *Store) end(d *Delivery) (hash uint64, ok bool) {
	switch d.Verdict {
	case Filtered, Silenced, Inhibited, NoHandler:
	case Delivered:
		if len(d.Attempts) > 1 {
			return 0, false
		}
	default:
		return 0, false
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	add := func(text string) {
		h.WriteString(text)
		h.WriteByte(0)
	}
	add(string(d.Verdict))
	add(fmt.Sprint(d.Status, d.Incident, d.Resolution))
	denied := false
	for i := range d.Steps {
		st := &d.Steps[i]
		denied = denied || st.Verdict == Deny
		for _, text := range [...]string{st.Kind, st.Name, st.Expression, st.Verdict, st.Error} {
			add(text)
		}
	}
	// A reason may contain values. A step that denies has them too.
	if !denied {
		add(d.Reason)
	}
	return h.Sum64(), true
}

func (s *Store) hash(texts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, text := range texts {
		h.WriteString(text)
		h.WriteByte(0)
	}
	return h.Sum64()
}

// put adds a record.
func (s *Store) put(b *batch, d *Delivery) error {
	value, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode trace: %w", err)
	}
	pair := pairName{d.Namespace, d.Entity, d.Check}
	s.number++
	key := binary.BigEndian.AppendUint64(pairKey(s.present().id, pair), uint64(s.number))
	if err := b.Set(key, value, nil); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	b.bytes += int64(len(key) + len(value))
	b.records++
	hash := s.hash(pair.namespace, pair.entity, pair.check)
	s.counts[hash]++
	if s.counts[hash] >= 2*s.opts.PerCheck {
		s.counts[hash] -= s.opts.PerCheck
		b.full = append(b.full, pair)
	}
	return nil
}

// present returns the generation that takes records.
func (s *Store) present() *generation { return &s.generations[len(s.generations)-1] }

// trim starts a generation when the present one has its share, and removes old ones.
func (s *Store) trim() {
	now := s.opts.Now().UnixMilli()
	if n := len(s.generations); n > 0 {
		g := s.present()
		if g.bytes >= max(s.opts.MaxBytes/sizeShares, 1) || now-g.began >= s.opts.MaxAge.Milliseconds()/ageShares && g.bytes > 0 {
			s.begin(g.id+1, now)
		}
	} else {
		s.begin(1, now)
	}
	total := int64(0)
	for _, g := range s.generations {
		total += g.bytes
	}
	for len(s.generations) > 1 {
		g := s.generations[0]
		if total <= s.opts.MaxBytes && now-g.newest < s.opts.MaxAge.Milliseconds() {
			break
		}
		if err := s.remove(g.id); err != nil {
			s.log.Error("old traces were not removed", "err", err)
			break
		}
		total -= g.bytes
		s.metrics.bytes.Sub(float64(g.bytes))
		s.generations = s.generations[1:]
	}
}

func (s *Store) begin(id uint32, now int64) {
	s.generations = append(s.generations, generation{id: id, began: now, newest: now})
	s.counts = map[uint64]int{}
}

func (s *Store) remove(id uint32) error {
	b := s.opts.DB.NewBatch()
	defer b.Close()
	err := b.DeleteRange(recordKey(id), recordKey(id+1), nil)
	if err == nil {
		err = b.Delete(generationKey(id), nil)
	}
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err != nil {
		return fmt.Errorf("remove generation %d: %w", id, err)
	}
	return nil
}

// trimPair removes all but a check's newest records from a generation.
func (s *Store) trimPair(id uint32, pair pairName) (err error) {
	from, to := pairRange(id, pair)
	it, err := s.opts.DB.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return fmt.Errorf("trim traces of %s/%s: %w", pair.entity, pair.check, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	n := 0
	for ok := it.Last(); ok; ok = it.Prev() {
		if n++; n > s.opts.PerCheck {
			if err := s.opts.DB.DeleteRange(from, append(slices.Clone(it.Key()), 0), pebble.NoSync); err != nil {
				return fmt.Errorf("trim traces of %s/%s: %w", pair.entity, pair.check, err)
			}
			break
		}
	}
	return it.Error()
}

func generationKey(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte("tg"), id) }
func recordKey(id uint32) []byte     { return binary.BigEndian.AppendUint32([]byte("tr"), id) }

func pairKey(id uint32, pair pairName) []byte {
	b := recordKey(id)
	for _, name := range [...]string{pair.namespace, pair.entity, pair.check} {
		b = append(append(b, name...), 0)
	}
	return b
}

// pairRange returns the range of keys of a check's records.
func pairRange(id uint32, pair pairName) (from, to []byte) {
	from = pairKey(id, pair)
	to = slices.Clone(from)
	to[len(to)-1] = 1
	return from, to
}

const generationVersion = 1

var errMalformed = errors.New("malformed generation of traces")

func (g *generation) value() []byte {
	b := []byte{generationVersion}
	for _, v := range [...]int64{g.began, g.newest, g.bytes, g.number} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func (g *generation) decode(key, value []byte) error {
	if len(key) != len(generationKey(0)) || len(value) == 0 || value[0] != generationVersion {
		return errMalformed
	}
	g.id = binary.BigEndian.Uint32(key[2:])
	value = value[1:]
	for _, p := range [...]*int64{&g.began, &g.newest, &g.bytes, &g.number} {
		v, n := binary.Varint(value)
		if n <= 0 {
			return errMalformed
		}
		*p, value = v, value[n:]
	}
	return nil
}

// load reads the generations and finds the number of the last record.
func (s *Store) load() (err error) {
	it, err := s.opts.DB.NewIter(&pebble.IterOptions{LowerBound: []byte("tg"), UpperBound: []byte("th")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		var g generation
		if err := g.decode(it.Key(), value); err != nil {
			s.log.Error("generation of traces cannot be read and is removed", "key", string(it.Key()))
			if len(it.Key()) == len(generationKey(0)) {
				err = s.remove(binary.BigEndian.Uint32(it.Key()[2:]))
			}
			if err != nil && !errors.Is(err, errMalformed) {
				return err
			}
			continue
		}
		s.generations = append(s.generations, g)
		s.number = g.number
	}
	return it.Error()
}
