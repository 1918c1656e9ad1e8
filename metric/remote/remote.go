// Package remote sends samples to a distributed store by Prometheus remote write: Mimir, Thanos, VictoriaMetrics or
// Prometheus. The intake gives it a copy of what it stores.
//
// Add puts a sample into the batch of its shard, and a series always has the same shard. A batch that is full or old
// enough is compressed and waits in memory for its shard's sender. If the memory is full, batches go to the overflow (a
// queue on disk), and all later ones too, until it is empty again: so the samples of a series leave in the order in
// which they came. Without an overflow, batches that have no room are dropped. Add never waits for the network.
//
// A receiver that is away or busy (no answer, 5xx, 429), or that refuses the credentials (401, 403, 407), gets a batch
// again until it takes it. A batch that the receiver refuses (other 4xx) is dropped and counted. After a lost answer or
// a kill, a batch may come twice.
//
// Passwords, tokens and certificates are in files, which are read again when they change. No log line, error or metric
// contains them, or the URL.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Overflow is a queue on disk. Append may be called while another goroutine uses Next and Done.
type Overflow interface {
	// Append adds a record and does not keep it.
	Append(record []byte) error
	// Next returns the oldest record, and io.EOF if there is none. It is valid until Done.
	Next() ([]byte, error)
	// Done takes the record that Next returned off the queue.
	Done()
}

// Options of a Sender. Zero values are the defaults.
type Options struct {
	// Name identifies the receiver in log lines and metrics. It is required.
	Name string
	// URL is where to send to, for example https://mimir.example.com/api/v1/push. It is required.
	URL string
	// Headers are sent with each request, for example X-Scope-OrgID. HeaderFiles are files with the values of others.
	Headers, HeaderFiles map[string]string
	// Username and PasswordFile are for basic authentication, BearerTokenFile is for a token. At most one kind is set.
	Username, PasswordFile, BearerTokenFile string
	// CAFile has the authorities of the receiver's certificate; the default is the system's. CertFile and KeyFile are the
	// Sender's own certificate; the default is none. All are PEM, and for https.
	CAFile, CertFile, KeyFile string
	// FilesEvery is the time between two looks at whether these files have changed. The default is 10 s.
	FilesEvery time.Duration
	// Labels are added to each series that has no label of that name.
	Labels map[string]string
	// Match selects series by a regular expression that the stored name must match somewhere. The default is all.
	Match string
	// Sanitize makes names that need no quotes in PromQL: all bytes but letters, digits and "_" (":" in metric names)
	// become "_". Without it, names are sent as they are, as Prometheus 3 and newer stores take them.
	Sanitize bool

	// Shards is the number of requests at a time. The default is 4.
	Shards int
	// BatchSamples is the number of samples of a request. The default is 2,000.
	BatchSamples int
	// MaxDelay is how long a sample waits for others. The default is 5 s.
	MaxDelay time.Duration
	// QueueBytes bounds the compressed batches in memory. The default is 64 MiB.
	QueueBytes int64
	// Overflow takes what has no room in memory. The caller opens it before Start and closes it after Stop.
	Overflow Overflow

	// Timeout bounds a request. The default is 30 s.
	Timeout time.Duration
	// MinBackoff and MaxBackoff are the waits after the first failure and after many. The defaults are 100 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// MaxRetryAfter bounds the wait that a receiver may ask for. The default is 5 min.
	MaxRetryAfter time.Duration

	// Log is required.
	Log *slog.Logger
	// Registerer takes the metrics; nil takes none.
	Registerer prometheus.Registerer

	// transport replaces the network in tests.
	transport http.RoundTripper
}

const (
	maxShards       = 256
	maxBatchSamples = 100_000
)

func or[T int | int64 | time.Duration](value *T, standard T) {
	if *value == 0 {
		*value = standard
	}
}

func (o *Options) fill() error {
	or(&o.Shards, 4)
	or(&o.BatchSamples, 2000)
	or(&o.MaxDelay, 5*time.Second)
	or(&o.FilesEvery, 10*time.Second)
	or(&o.QueueBytes, 64<<20)
	or(&o.Timeout, 30*time.Second)
	or(&o.MinBackoff, 100*time.Millisecond)
	or(&o.MaxBackoff, 30*time.Second)
	or(&o.MaxRetryAfter, 5*time.Minute)
	fail := func(format string, args ...any) error {
		return fmt.Errorf("remote write to %q: "+format, append([]any{o.Name}, args...)...)
	}
	if o.Name == "" {
		return errors.New("remote write: no Name")
	}
	if o.Log == nil {
		return fail("no Log")
	}
	if err := o.checkAccess(); err != nil {
		return fail("%w", err)
	}
	if _, err := regexp.Compile(o.Match); err != nil {
		return fail("Match: %w", err)
	}
	if o.Shards < 1 || o.Shards > maxShards {
		return fail("Shards is %d: use 1 to %d", o.Shards, maxShards)
	}
	if o.BatchSamples < 1 || o.BatchSamples > maxBatchSamples {
		return fail("BatchSamples is %d: use 1 to %d", o.BatchSamples, maxBatchSamples)
	}
	if o.QueueBytes < 0 {
		return fail("QueueBytes is negative: %d", o.QueueBytes)
	}
	for name, d := range map[string]time.Duration{"FilesEvery": o.FilesEvery, "MaxDelay": o.MaxDelay, "Timeout": o.Timeout,
		"MinBackoff": o.MinBackoff, "MaxBackoff": o.MaxBackoff, "MaxRetryAfter": o.MaxRetryAfter} {
		if d < time.Millisecond {
			return fail("%s is %v: use 1 ms or more", name, d)
		}
	}
	return nil
}

// Sender sends samples to one receiver.
type Sender struct {
	o       Options
	match   *regexp.Regexp // nil for all
	access  *filewatch.Content[*access]
	shards  []*shard
	metrics metrics
	log     *rarelog.Log

	mu sync.Mutex // guards the fields below; taken after a shard's mu
	// bytes are the compressed batches in memory, with those that are being sent.
	bytes int64
	// spilling is true while the overflow may have batches: all new ones go there.
	spilling bool
	// draining is the time of the record that the drainer is at, the oldest of the overflow; 0 without one.
	draining time.Time
	state    state
	// idle is closed, and replaced, when bytes becomes 0.
	idle chan struct{}

	ctx    context.Context // ends when the senders must give up
	cancel context.CancelFunc
	wake   chan struct{} // tells the drainer that spilling began
	flush  chan struct{} // ends the flusher
	done   sync.WaitGroup
}

type state uint8

const (
	created state = iota
	started
	stopping // takes no new samples
	stopped
)

// shard is a part of the series: its samples are sent one request after the other.
type shard struct {
	mu    sync.Mutex // guards the fields below
	batch []byte     // a prometheus.WriteRequest, not compressed
	count int
	since time.Time // of the first sample of batch
	names names
	// closed is true when samples come too late.
	closed bool

	queue []*batch // guarded by the Sender's mu
	more  chan struct{}
}

// batch is a request that is ready to be sent.
type batch struct {
	body    []byte
	samples int
	since   time.Time // of the first sample
}

// New returns a Sender. It takes samples from now on, and sends them after Start.
func New(o Options) (*Sender, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	files, err := o.watchAccess()
	if err != nil {
		return nil, fmt.Errorf("remote write to %q: %w", o.Name, err)
	}
	s := &Sender{o: o, access: files, log: rarelog.New(o.Log.With("remote", o.Name)),
		idle: make(chan struct{}), wake: make(chan struct{}, 1), flush: make(chan struct{}),
		// The overflow may have batches from before.
		spilling: o.Overflow != nil}
	if o.Match != "" {
		s.match = regexp.MustCompile(o.Match)
	}
	s.metrics = newMetrics(o.Registerer, o.Name, func() float64 { return s.age().Seconds() })
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for range o.Shards {
		sh := &shard{more: make(chan struct{}, 1)}
		sh.names.init(o)
		s.shards = append(s.shards, sh)
	}
	return s, nil
}

// Start starts to send.
func (s *Sender) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != created {
		return fmt.Errorf("remote write to %q: it was started or stopped before", s.o.Name)
	}
	s.state = started
	s.access.Start()
	for _, sh := range s.shards {
		s.done.Go(func() { s.sendShard(sh) })
	}
	s.done.Go(s.flushOld)
	if s.o.Overflow != nil {
		s.done.Go(s.drain)
	}
	return nil
}

// Stop takes no more samples and sends what waits in memory, until ctx ends; the rest goes to the overflow, or is
// dropped if there is none. What is in the overflow stays there. The rest comes behind it, although it may be older:
// a receiver that takes no older samples behind newer ones then refuses it.
func (s *Sender) Stop(ctx context.Context) error {
	s.mu.Lock()
	before := s.state
	if before >= stopping {
		s.mu.Unlock()
		s.done.Wait()
		return nil
	}
	s.state = stopping
	s.mu.Unlock()
	err := s.access.Stop(ctx)
	close(s.flush)
	for _, sh := range s.shards {
		sh.mu.Lock()
		s.closeBatch(sh)
		sh.closed = true
		sh.mu.Unlock()
	}
	if before == started {
		s.waitIdle(ctx)
	}
	s.cancel()
	s.done.Wait()
	s.access.Current().client.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = stopped
	left := 0
	for _, sh := range s.shards {
		for _, b := range sh.queue {
			if !s.overflow(b) {
				left += b.samples
			}
		}
		sh.queue = nil
	}
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("stop remote write to %q: %d samples were not sent", s.o.Name, left))
	}
	return err
}

// waitIdle waits until no batch is in memory, or until ctx ends.
func (s *Sender) waitIdle(ctx context.Context) {
	for {
		s.mu.Lock()
		n, idle := s.bytes, s.idle
		s.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

// Add takes a sample of the series with a stored name (see package promname). It keeps nothing of name.
func (s *Sender) Add(name []byte, unixMilli int64, value float64) {
	if s.match != nil && !s.match.Match(name) {
		return
	}
	sh := s.shards[xxhash.Sum64(name)%uint64(len(s.shards))]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		s.metrics.dropped.WithLabelValues("stopped").Inc()
		return
	}
	if sh.count == 0 {
		sh.since = time.Now()
	}
	sh.batch = appendSeries(sh.batch, sh.names.labels(name), unixMilli, value)
	sh.count++
	if sh.count >= s.o.BatchSamples || len(sh.batch) >= maxBatchBytes {
		s.closeBatch(sh)
	}
}

// closeBatch compresses the batch of a shard, whose mu the caller holds, and puts it into a queue.
func (s *Sender) closeBatch(sh *shard) {
	if sh.count == 0 {
		return
	}
	b := &batch{compress(sh.batch), sh.count, sh.since}
	sh.batch, sh.count = sh.batch[:0], 0
	s.mu.Lock()
	defer s.mu.Unlock()
	size := int64(len(b.body))
	switch {
	case !s.spilling && s.bytes+size <= s.o.QueueBytes:
		s.setBytes(s.bytes + size)
		sh.queue = append(sh.queue, b)
		notify(sh.more)
	case s.overflow(b):
		s.spilling = true
		notify(s.wake)
	}
}

// overflow puts b into the overflow. If that is not possible, it counts b as dropped. The caller holds mu.
func (s *Sender) overflow(b *batch) bool {
	if s.o.Overflow == nil {
		reason := "full"
		if s.state == stopped {
			reason = "stopped"
		}
		s.metrics.dropped.WithLabelValues(reason).Add(float64(b.samples))
		s.log.Warn("remote write has no room for samples, they are lost", reason, "samples", b.samples)
		return false
	}
	if err := s.o.Overflow.Append(b.record()); err != nil {
		s.metrics.dropped.WithLabelValues("overflow").Add(float64(b.samples))
		s.log.Warn("remote write cannot put samples into the overflow, they are lost", "", "samples", b.samples, "err", err)
		return false
	}
	s.metrics.spilled.Add(float64(b.samples))
	return true
}

// setBytes sets bytes. The caller holds mu.
func (s *Sender) setBytes(n int64) {
	s.bytes = n
	s.metrics.queue.Set(float64(n))
	if n == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// flushOld closes batches that are almost MaxDelay old.
func (s *Sender) flushOld() {
	tick := time.NewTicker(max(s.o.MaxDelay/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.flush:
			return
		case now := <-tick.C:
			for _, sh := range s.shards {
				sh.mu.Lock()
				if sh.count > 0 && now.Sub(sh.since) >= s.o.MaxDelay/2 {
					s.closeBatch(sh)
				}
				sh.mu.Unlock()
			}
		}
	}
}

// sendShard sends the batches of a shard, one after the other.
func (s *Sender) sendShard(sh *shard) {
	for {
		s.mu.Lock()
		var b *batch
		if len(sh.queue) > 0 {
			b = sh.queue[0]
		}
		s.mu.Unlock()
		if b == nil {
			select {
			case <-sh.more:
				continue
			case <-s.ctx.Done():
				return
			}
		}
		if !s.deliver(b) {
			return // It stays in the queue for Stop.
		}
		s.mu.Lock()
		sh.queue[0] = nil
		if sh.queue = sh.queue[1:]; len(sh.queue) == 0 {
			sh.queue = nil
		}
		s.setBytes(s.bytes - int64(len(b.body)))
		s.mu.Unlock()
	}
}

// drain sends what is in the overflow, when the memory is empty: that is older.
func (s *Sender) drain() {
	for {
		s.mu.Lock()
		n, idle, spilling := s.bytes, s.idle, s.spilling
		s.mu.Unlock()
		if !spilling {
			select {
			case <-s.wake:
				continue
			case <-s.ctx.Done():
				return
			}
		}
		if n > 0 {
			select {
			case <-idle:
				continue
			case <-s.ctx.Done():
				return
			}
		}
		if !s.drainOne() {
			return
		}
	}
}

// drainOne sends the oldest record of the overflow. It reports whether to go on.
func (s *Sender) drainOne() bool {
	if s.ctx.Err() != nil {
		return false
	}
	// New batches are appended under mu, so an empty overflow is empty until mu is free again.
	s.mu.Lock()
	record, err := s.o.Overflow.Next()
	if errors.Is(err, io.EOF) {
		s.spilling, s.draining = false, time.Time{}
	}
	s.mu.Unlock()
	if errors.Is(err, io.EOF) {
		return true
	}
	if err != nil {
		s.log.Error("remote write cannot read the overflow", "", "err", err)
		return s.sleep(s.o.MaxBackoff)
	}
	b, err := readRecord(record)
	if err != nil {
		s.metrics.damaged.Inc()
		s.log.Error("remote write passes over a record of the overflow", "", "err", err)
	} else {
		s.mu.Lock()
		s.draining = b.since
		s.mu.Unlock()
		if !s.deliver(b) {
			return false
		}
	}
	s.o.Overflow.Done()
	return true
}

// age is how long the oldest sample has waited; 0 if none waits. What is in memory is older than what is in the
// overflow, unless the drainer is at work: then the memory is empty, but for batches that are not full yet.
func (s *Sender) age() time.Duration {
	now := time.Now()
	var age time.Duration
	waits := func(since time.Time) {
		if !since.IsZero() {
			age = max(age, now.Sub(since))
		}
	}
	for _, sh := range s.shards {
		sh.mu.Lock()
		if sh.count > 0 {
			waits(sh.since)
		}
		sh.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		if len(sh.queue) > 0 {
			waits(sh.queue[0].since)
		}
	}
	waits(s.draining)
	return age
}

// sleep waits, and reports whether to go on.
func (s *Sender) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}
