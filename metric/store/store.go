// Package store keeps the points of all series in tiers, each of them a Prometheus TSDB, and answers reads of a
// series with whisper's rules. The listeners and the aggregator call Open once for a series and Put for batches of
// its points; render and the Prometheus API call Fetch, FetchMany and Querier.
//
// A tier holds one archive (step and retention) of all series whose policy has it. The finest archive of a series keeps
// points with their own times; values of the coarser archives are rolled up as points arrive. Slots that are not in a
// coarse tier yet are computed from the next finer one when they are read. DESIGN.md has the reasons.
//
// A point is in the page cache when its batch is committed, so it survives a kill of the process from then on, and a
// power cut after the next SyncInterval. The same is true of what it changes in coarser tiers: a journal has which of
// their slots must still be computed. Points in the queues are lost when the process is killed.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// ErrTooManySeries is why Open refuses a new series: MaxSeries, MemoryLimit or CreatesPerMinute is reached.
var ErrTooManySeries = errors.New("too many series")

// ErrStopped is returned by calls after Stop.
var ErrStopped = errors.New("metric store is stopped")

// Policy is how the points of a series are kept.
type Policy struct {
	Archives     []series.Archive
	Method       series.Method
	XFilesFactor float64
}

// Options are the settings of a Store. Zero values are replaced by the defaults.
type Options struct {
	// Dir holds a directory for each tier.
	Dir string
	// Policy returns the policy of a canonical name. It must be safe for concurrent use. Default: 60 s for 7 days,
	// average, 0.5.
	Policy func(name string) Policy
	// Shards is the number of queues and of goroutines that append. Default GOMAXPROCS.
	Shards int
	// QueueSamples bounds the samples that wait in one shard's queue. Default 65,536.
	QueueSamples int
	// MaxSeries bounds the series in memory. Default 10,000,000.
	MaxSeries int
	// CreatesPerMinute bounds the rate of new series. Default 0: no bound.
	CreatesPerMinute int
	// MemoryLimit in bytes: Open refuses new series while the estimate of the memory of all series is above it.
	// Default 0: no bound.
	MemoryLimit int64
	// LateWindow is how much older than the newest point a point may be and still be stored. Coarser tiers add two of
	// their steps. Default 24 h; never more than the tier's retention.
	LateWindow time.Duration
	// MaxFuture is how far ahead of the clock a point may be. Points beyond it are dropped and counted. Default 10
	// min, at most 30 min, because a point far ahead would move the time window in which a tier accepts the points of
	// others.
	MaxFuture time.Duration
	// CloseAfter is how long after its end a coarse slot is closed if no later point closes it. Default 1 min.
	CloseAfter time.Duration
	// SweepInterval is how often such slots are looked for. Default 20 s.
	SweepInterval time.Duration
	// SyncInterval is how often the write-ahead logs are synced to the disk. Default 1 s; negative: left to the
	// kernel.
	SyncInterval time.Duration
	// MaxCorrections bounds the coarse slots that wait for being computed again after late points. Default 4,000,000.
	MaxCorrections int
	// MinFreeBytes is the free space of the disk below which points are dropped and counted, until there is more
	// again. The TSDB cannot survive a full disk, so this must leave room for its next chunk files. Default 512 MiB;
	// negative: no check.
	MinFreeBytes int64
	// Compress uses Snappy for the write-ahead logs: they need 5 bytes a point instead of 13, and a point
	// costs about 30 ns more.
	Compress bool
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log and Registerer may be nil.
	Log        *slog.Logger
	Registerer prometheus.Registerer

	// freeBytes replaces the look at the disk in tests.
	freeBytes func(dir string) (int64, error)
	// stripes is the size of a tier's series map, for tests that open many tiers.
	stripes int
	// maxLate bounds shard.late, with what is older. A further rewrite of a second that is forgotten may have the same
	// millisecond as the one before it, and be lost.
	maxLate int
}

// DefaultPolicy is carbon's for a name that no schema matches.
func DefaultPolicy(string) Policy {
	return Policy{Archives: []series.Archive{{Step: 60, Points: 10080}}, Method: series.Average, XFilesFactor: 0.5}
}

func (o *Options) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	defInt := func(d *int, v int) {
		if *d == 0 {
			*d = v
		}
	}
	if o.Policy == nil {
		o.Policy = DefaultPolicy
	}
	defInt(&o.Shards, runtime.GOMAXPROCS(0))
	defInt(&o.QueueSamples, 65536)
	defInt(&o.MaxSeries, 10_000_000)
	defInt(&o.MaxCorrections, 4_000_000)
	defInt(&o.maxLate, 500_000)
	def(&o.LateWindow, 24*time.Hour)
	def(&o.MaxFuture, 10*time.Minute)
	def(&o.CloseAfter, time.Minute)
	def(&o.SweepInterval, 20*time.Second)
	def(&o.SyncInterval, time.Second)
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = 512 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.freeBytes == nil {
		o.freeBytes = freeBytes
	}
}

func (o *Options) check() error {
	var errs []error
	within := func(name string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %d: it must be from %d to %d", name, v, low, high))
		}
	}
	if o.Dir == "" {
		errs = append(errs, errors.New("the option Dir is empty"))
	}
	within("Shards", int64(o.Shards), 1, 1024)
	within("QueueSamples", int64(o.QueueSamples), 1, 1<<28)
	within("MaxSeries", int64(o.MaxSeries), 1, math.MaxInt32)
	within("CreatesPerMinute", int64(o.CreatesPerMinute), 0, math.MaxInt32)
	within("MemoryLimit", o.MemoryLimit, 0, math.MaxInt64)
	within("MaxCorrections", int64(o.MaxCorrections), 1, 1<<30)
	within("LateWindow in seconds", int64(o.LateWindow/time.Second), 1, 366*24*3600)
	within("MaxFuture in seconds", int64(o.MaxFuture/time.Second), 0, 1800)
	within("CloseAfter in seconds", int64(o.CloseAfter/time.Second), 1, 3600)
	within("SweepInterval in milliseconds", o.SweepInterval.Milliseconds(), 1, 3600_000)
	if o.SyncInterval >= 0 {
		within("SyncInterval in milliseconds", o.SyncInterval.Milliseconds(), 1, 3600_000)
	}
	return errors.Join(errs...)
}

// Store is a set of tiers and the series whose points go into them.
type Store struct {
	o       Options
	log     *slog.Logger
	rare    *rarelog.Log
	metrics *metrics
	counts  counts
	creates *rate.Limiter

	// names are the series in memory, in nameShards maps by hash.
	names  [nameShards]nameShard
	count  atomic.Int64 // series in names
	bytes  atomic.Int64 // of the series themselves
	shards []*shard

	// planMu guards plans and the opening of tiers. It is never taken while a shard's lock is held.
	planMu sync.Mutex
	plans  map[string]*plan
	tiers  atomic.Pointer[[]*tier] // by id; only grows

	correctMu sync.Mutex    // held while slots are computed again
	journal   *journal      // of the slots that wait for that; nil until it is read at the start
	correct   chan struct{} // wakes the corrector
	full      atomic.Bool   // the disk has less than MinFreeBytes
	crashed   bool          // the last run did not end with Stop
	hurry     chan struct{} // closed by Stop: recover pauses no more
	recovered chan struct{} // closed when recover has found all slots

	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	lifeMu  sync.Mutex // guards started, stopped and stopErr
	started bool
	stopped bool
	stopErr error
	done    atomic.Bool // Stop has begun: no points are taken
	closing atomic.Bool // no series are opened: recover, which does, has ended
}

// plan is a policy with its tiers. All series of equal policies share one.
type plan struct {
	Policy
	tiers []*tier
	// ratios[k] is the number of slots of archive k-1 in a slot of archive k.
	ratios []int64
}

// cleanFile exists in Dir while the last run ended with Stop.
const cleanFile = "stopped-cleanly"

// New checks the options and opens all tiers in Dir. Start must follow before the first Put returns.
func New(o Options) (*Store, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("metric store: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create directory of metric store: %w", err)
	}
	s := &Store{o: o, log: o.Log, rare: rarelog.New(o.Log), plans: map[string]*plan{}, correct: make(chan struct{}, 1),
		hurry: make(chan struct{}), recovered: make(chan struct{})}
	s.tiers.Store(&[]*tier{})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if o.CreatesPerMinute > 0 {
		s.creates = rate.NewLimiter(rate.Limit(float64(o.CreatesPerMinute)/60), o.CreatesPerMinute)
	}
	for i := range s.names {
		s.names[i].m = map[string]*Series{}
	}
	for i := range o.Shards {
		s.shards = append(s.shards, newShard(s, i))
	}
	if err := removeImports(o.Dir); err != nil {
		return nil, fmt.Errorf("open metric store: %w", err)
	}
	clean := filepath.Join(o.Dir, cleanFile)
	stopped := exists(clean)
	if err := s.openTiers(stopped); err != nil {
		s.cancel()
		return nil, errors.Join(err, s.closeTiers())
	}
	if !stopped {
		s.crashed = len(*s.tiers.Load()) > 0
	} else if err := os.Remove(clean); err != nil {
		s.cancel()
		return nil, errors.Join(fmt.Errorf("open metric store: %w", err), s.closeTiers())
	}
	if s.crashed {
		s.log.Info("metric store did not end with a stop, coarse values of its last minutes are computed again")
		for _, t := range *s.tiers.Load() {
			var err error
			if t.startNewest, err = t.newestOfEach(); err != nil {
				s.log.Error("cannot read the newest points from before a crash", "tier", t.name(), "err", err)
			}
		}
	}
	if err := s.openJournal(); err != nil {
		s.cancel()
		return nil, errors.Join(fmt.Errorf("open metric store: %w", err), s.closeTiers())
	}
	s.metrics = newMetrics(s, o.Registerer)
	s.checkDisk()
	return s, nil
}

// Start begins to append what Put queues.
func (s *Store) Start() error {
	s.lifeMu.Lock()
	defer s.lifeMu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if s.started {
		return nil
	}
	s.started = true
	for _, sh := range s.shards {
		s.wg.Go(sh.run)
	}
	s.wg.Go(s.runCorrections)
	s.wg.Go(s.runSweeps)
	s.wg.Go(s.runDisk)
	if s.crashed {
		s.wg.Go(s.recover)
	}
	return nil
}

// Stop appends what is queued, writes the open coarse slots, and closes the tiers. After ctx has ended it no longer
// waits for the queues. The tiers are closed in any case.
func (s *Store) Stop(ctx context.Context) error {
	s.lifeMu.Lock()
	defer s.lifeMu.Unlock()
	if s.stopped {
		return s.stopErr
	}
	s.stopped = true
	s.done.Store(true)
	var errs []error
	drained := true
	if s.started {
		for _, sh := range s.shards {
			if err := sh.drain(ctx); err != nil {
				drained = false
				errs = append(errs, fmt.Errorf("stop metric store: append what is queued: %w", err))
				break
			}
		}
	}
	recovered := s.waitRecovered(ctx)
	s.closing.Store(true)
	s.cancel()
	for _, sh := range s.shards {
		sh.signal()
		sh.releaseWaiters()
	}
	s.wg.Wait()
	if s.started {
		for _, sh := range s.shards {
			sh.closeSlots(math.MaxInt64)
		}
		drained = s.correctAll(ctx) && drained
	}
	s.metrics.unregister(s.o.Registerer)
	if err := s.closeTiers(); err != nil {
		errs = append(errs, err)
	}
	if err := s.journal.close(len(errs) > 0 || s.counts.wrong.Load() > 0); err != nil {
		errs = append(errs, fmt.Errorf("stop metric store: close the journal of corrections: %w", err))
	}
	if recovered && drained && s.started && len(errs) == 0 {
		if err := os.WriteFile(filepath.Join(s.o.Dir, cleanFile), nil, 0o644); err != nil {
			errs = append(errs, fmt.Errorf("stop metric store: %w", err))
		}
	}
	s.stopErr = errors.Join(errs...)
	return s.stopErr
}

// waitRecovered waits until the slots from before a crash are found, and reports false if ctx has ended before: then
// the next start must look for them, too.
func (s *Store) waitRecovered(ctx context.Context) bool {
	if !s.crashed {
		return true
	}
	close(s.hurry)
	if !s.started {
		return false
	}
	select {
	case <-s.recovered:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Store) now() int64 { return s.o.Now().Unix() }

// planOf returns the plan of a name's policy and opens its tiers if need be.
func (s *Store) planOf(name string) (*plan, error) {
	p := s.o.Policy(name)
	key := planKey(p)
	s.planMu.Lock()
	defer s.planMu.Unlock()
	if pl := s.plans[key]; pl != nil {
		return pl, nil
	}
	if err := checkPolicy(p); err != nil {
		return nil, fmt.Errorf("policy of series %s: %w", rarelog.Short(name), err)
	}
	if s.closing.Load() {
		return nil, ErrStopped
	}
	p.Archives = slices.Clone(p.Archives)
	pl := &plan{Policy: p, ratios: make([]int64, len(p.Archives))}
	for k, a := range p.Archives {
		t, err := s.tierOf(a)
		if err != nil {
			return nil, err
		}
		pl.tiers = append(pl.tiers, t)
		if k > 0 {
			pl.ratios[k] = a.Step / p.Archives[k-1].Step
		}
	}
	s.plans[key] = pl
	return pl, nil
}

func planKey(p Policy) string {
	b := make([]byte, 0, 64)
	for _, a := range p.Archives {
		b = fmt.Appendf(b, "%d:%d,", a.Step, a.Points)
	}
	return string(fmt.Appendf(b, "%d,%x", p.Method, math.Float64bits(p.XFilesFactor)))
}

// maxArchives bounds the archives of a policy.
const maxArchives = 16

// checkPolicy applies whisper's rules for archives.
func checkPolicy(p Policy) error {
	if len(p.Archives) == 0 || len(p.Archives) > maxArchives {
		return fmt.Errorf("%d archives: there must be from 1 to %d", len(p.Archives), maxArchives)
	}
	if p.Method < series.Average || p.Method > series.AbsMin {
		return fmt.Errorf("%v is no aggregation method", p.Method)
	}
	if !(p.XFilesFactor >= 0 && p.XFilesFactor <= 1) {
		return fmt.Errorf("xFilesFactor %v: it must be from 0 to 1", p.XFilesFactor)
	}
	const most = 1 << 32
	for i, a := range p.Archives {
		if a.Step < 1 || a.Points < 1 || a.Step > most || a.Points > most || a.Retention() > most {
			return fmt.Errorf("archive %d has step %d and %d points: both must be positive, and their product"+
				" below 2^32", i, a.Step, a.Points)
		}
		if i == 0 {
			continue
		}
		f := p.Archives[i-1]
		switch {
		case a.Step <= f.Step || a.Step%f.Step != 0:
			return fmt.Errorf("step %d of archive %d is no multiple of the finer step %d", a.Step, i, f.Step)
		case a.Retention() <= f.Retention():
			return fmt.Errorf("retention %d s of archive %d is not longer than the finer archive's %d s", a.Retention(), i,
				f.Retention())
		case f.Points < a.Step/f.Step:
			return fmt.Errorf("archive %d has %d points: a slot of the next archive needs %d", i-1, f.Points,
				a.Step/f.Step)
		}
	}
	return nil
}
