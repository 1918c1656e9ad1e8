package filter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// PoolOptions configures a Pool. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultPoolOptions.
type PoolOptions struct {
	// Memory bounds a worker's memory, in bytes.
	Memory int64
	// Idle is the time without a question after which a worker ends. The first one stays.
	Idle time.Duration
	// MaxPause bounds the pause of a source that killed a worker, and the pause after a worker could not be started.
	// Pauses grow with each death and each failed start.
	MaxPause   time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// lane is a queue with its own workers. Sources that are new, were slow, or killed a worker use lanes where they delay
// only others like them.
type lane int

const (
	laneQuick    lane = iota // filters, and expressions about entities, that were quick before
	laneNew                  // new or slow ones
	laneMutator              // mutators that were quick before
	laneMutators             // new or slow ones
	laneSuspect              // suspects, and sources whose worker died
	lanes
)

// lanesOf has each lane's maximum of workers, and of questions of one namespace at the same time (zero: no bound).
// Workers start when they are needed.
var lanesOf = [lanes]struct{ workers, each int }{
	laneQuick: {2, 0}, laneNew: {3, 1}, laneMutator: {2, 1}, laneMutators: {3, 1}, laneSuspect: {2, 1},
}

const (
	// maxDeaths is how many workers a source may kill within deathMemory before it is set aside.
	maxDeaths, deathMemory = 3, time.Hour
	// sweepEvery is how often the pool forgets old suspects.
	sweepEvery = time.Minute
	// maxSuspects bounds the sources whose deaths are remembered.
	maxSuspects = 10_000
	// firstPause is the pause of a source after it killed its first worker.
	firstPause = time.Second
	// maxLosses is how many workers the sources of one namespace may kill within a minute before the namespace is kept
	// off the quick lanes for apartFor.
	maxLosses, apartFor = 3, time.Minute
	// maxBatch bounds the questions that a worker gets at once, and maxBatchBytes their size together.
	maxBatch, maxBatchBytes = 32, 256 << 10
	// maxKnown is how many definitions a worker keeps before it forgets all.
	maxKnown = 2000
	// firstStart is the pause after the first failed start of a worker.
	firstStart = 50 * time.Millisecond
	// maxStarts is how often a question is retried if its worker cannot be started. startsFail is how long starts must
	// fail before the pool stops retrying.
	maxStarts, startsFail = 3, 5 * time.Second
)

// Pool runs expressions and mutators of users in worker processes: damage to a worker does not reach the backend.
// DESIGN.md has the protocol.
type Pool struct {
	opts    PoolOptions
	program string // the workers' program; tests replace it
	log     *slog.Logger
	rare    *rarelog.Log
	metrics poolMetrics
	queues  [lanes]*queue
	quick   []*slot // of laneQuick
	stop    chan struct{}
	wg      sync.WaitGroup
	stopped sync.Once

	lifecycle sync.Mutex // held by Start
	started   atomic.Bool
	failing   atomic.Pointer[failure] // nil while workers can be started

	suspected atomic.Int32 // number of suspects, so that the path needs no lock while there are none
	losing    atomic.Int32 // number of namespaces in losses, for the same reason
	mu        sync.Mutex   // guards the fields below
	suspects  map[suspectKey]*suspect
	losses    map[string]*losses // by namespace
	swept     time.Time          // when old suspects and losses were last forgotten
	processes map[*process]bool  // true for processes that have sent hello
}

// failure is the reason why workers cannot be started, and since when.
type failure struct {
	err   error
	since time.Time
}

type poolMetrics struct {
	workers, aside           prometheus.Gauge
	deaths                   *prometheus.CounterVec
	retries, questions, lost prometheus.Counter
}

// asked is a question on its way.
type asked struct {
	namespace string
	def       *definition
	body      []byte        // of frameQuestion
	patience  time.Duration // bounds the worker's time
	fresh     bool          // its worker must be new, so that only this question can kill it
	look      func(body []byte) []byte
	answer    chan answered // takes one
	taken     bool          // a worker has it; guarded by the queue
}

// answered is an answer's body, or the reason why there is none.
type answered struct {
	body []byte
	err  error
}

var (
	errStopped = errors.New("expressions are not run any more: the backend stops")
	errAside   = errors.New("it is set aside: three worker processes died of it; change it")
	errPaused  = errors.New("a worker process died of it a moment ago: it is not run for some seconds")
	errNoPool  = errors.New("there are no workers to run it")
	errBusy    = errors.New("no worker was free for it in time: others that take long have not ended")
)

// diedError says that a question has no answer because its worker ended.
type diedError struct {
	// first says that the worker was busy with this question.
	first bool
	// blame says that the process had no other question before or beside it, and that it was not killed from outside.
	blame bool
	why   string
}

func (e *diedError) Error() string { return "it ended its worker process: " + e.why }

// DefaultPoolOptions returns the default settings.
func DefaultPoolOptions() PoolOptions {
	return PoolOptions{Memory: 256 << 20, Idle: time.Minute, MaxPause: 10 * time.Second}
}

// NewPool returns a pool that is not started.
func NewPool(opts PoolOptions) (*Pool, error) {
	if opts.Memory < 0 || opts.Idle < 0 || opts.MaxPause < 0 {
		return nil, errors.New("filter: Memory, Idle and MaxPause must not be negative")
	}
	defaults := DefaultPoolOptions()
	opts.Memory = cmp.Or(opts.Memory, defaults.Memory)
	opts.Idle = cmp.Or(opts.Idle, defaults.Idle)
	opts.MaxPause = cmp.Or(opts.MaxPause, defaults.MaxPause)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	log := opts.Logger.With("component", "filter")
	p := &Pool{
		opts: opts, program: workerPath, log: log, rare: rarelog.New(log), stop: make(chan struct{}),
		suspects: map[suspectKey]*suspect{}, losses: map[string]*losses{}, processes: map[*process]bool{},
		metrics: newPoolMetrics(),
	}
	for _, reason := range []string{"died", "timeout", "ended", "start"} {
		p.metrics.deaths.WithLabelValues(reason)
	}
	if r := opts.Registerer; r != nil {
		r.MustRegister(p.metrics.workers, p.metrics.aside, p.metrics.deaths, p.metrics.retries, p.metrics.questions, p.metrics.lost)
	}
	for i := range p.queues {
		p.queues[i] = newQueue(lanesOf[i].each)
	}
	return p, nil
}

func newPoolMetrics() poolMetrics {
	return poolMetrics{
		workers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_expression_workers", Help: "Processes that run expressions and mutators of users.",
		}),
		aside: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_expression_set_aside",
			Help: "Expressions and mutators that are not run any more, because three worker processes died of each.",
		}),
		deaths: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_expression_worker_deaths_total",
			Help: "Worker processes that ended while they ran something, were killed because it took too long, ended for another reason, " +
				"or could not be started.",
		}, []string{"reason"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_expression_retries_total",
			Help: "Expressions and mutators that were asked again on another worker, because theirs died.",
		}),
		questions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_expression_questions_total",
			Help: "Questions to worker processes: a filter or a mutator about an event, or an expression about an entity.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_expression_unanswered_total",
			Help: "Questions without an answer, because their worker died, none was free in time, or none can be started.",
		}),
	}
}

// Start starts the first worker. A failure is no error: Err reports it, and the start is retried.
func (p *Pool) Start(context.Context) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if p.started.Load() {
		return errors.New("filter: the pool was started already")
	}
	for of := range p.queues {
		for i := range lanesOf[of].workers {
			w := &slot{
				pool: p, queue: p.queues[of], work: make(chan *asked, 1),
				several: of == int(laneQuick), keep: of == int(laneQuick) && i == 0,
			}
			if w.keep {
				w.idle(false)
			}
			if w.several {
				p.quick = append(p.quick, w)
			}
			p.wg.Go(w.run)
		}
	}
	p.started.Store(true) // callers that see this also see p.quick
	return nil
}

// Stop ends all workers and their expressions. It may be called twice.
func (p *Pool) Stop() error {
	p.stopped.Do(func() {
		close(p.stop)
		p.mu.Lock()
		for process := range p.processes {
			process.cmd.Process.Kill() //nolint:errcheck // it may have ended
		}
		p.mu.Unlock()
	})
	p.lifecycle.Lock() // no goroutines are added after this
	defer p.lifecycle.Unlock()
	p.wg.Wait()
	return nil
}

// Err returns why expressions of users cannot run, or nil.
func (p *Pool) Err() error {
	if why := p.failing.Load(); why != nil {
		return fmt.Errorf("expressions of filters and mutators cannot be run, and are ignored: %w", why.err)
	}
	return nil
}

// ask asks a question and returns the body of the answer. It waits for a free worker for a time. If a worker cannot be
// started, it retries a few times, because starts may fail for a moment only.
func (p *Pool) ask(ctx context.Context, of lane, a *asked, wait time.Duration) ([]byte, error) {
	if p == nil || !p.started.Load() {
		return nil, errNoPool
	}
	p.metrics.questions.Inc()
	a.answer = make(chan answered, 1)
	for try := 1; ; try++ {
		body, err := p.askOnce(ctx, of, a, wait)
		if err == nil {
			return body, nil
		}
		if !errors.Is(err, errNoPool) || try == maxStarts || p.hopeless() || !p.rest(ctx, firstStart<<try) {
			p.metrics.lost.Inc()
			return nil, err
		}
	}
}

func (p *Pool) askOnce(ctx context.Context, of lane, a *asked, wait time.Duration) ([]byte, error) {
	if of == laneQuick && !a.fresh && p.atOnce(a) {
		got := <-a.answer
		return got.body, got.err
	}
	q := p.queues[of]
	if !q.put(a) {
		return nil, errBusy
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
	select {
	case got := <-a.answer:
		return got.body, got.err
	case <-timer.C:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.stop:
		err = errStopped
	}
	if q.remove(a) {
		return nil, err
	}
	got := <-a.answer // a worker with a question answers in time or is killed
	return got.body, got.err
}

// hopeless reports whether starts have failed for so long that a retry only takes time.
func (p *Pool) hopeless() bool {
	f := p.failing.Load()
	return f != nil && time.Since(f.since) > startsFail
}

// rest waits for a pause. It reports false if the pool stops or the caller gives up.
func (p *Pool) rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.stop:
	}
	return false
}

// atOnce asks an idle quick worker directly, without the switches between goroutines that a queue costs. Waiting
// questions go first.
func (p *Pool) atOnce(a *asked) bool {
	if p.queues[laneQuick].busy.Load() {
		return false
	}
	for _, s := range p.quick {
		if !s.mu.TryLock() {
			continue
		}
		ready := s.process != nil && !s.process.gone()
		if ready {
			s.lent.Store(true)
			s.batch = append(s.batch[:0], a)
			s.serve()
			s.lent.Store(false)
		}
		s.mu.Unlock()
		if ready {
			s.queue.back()
			return true
		}
	}
	return false
}

// startProcess starts a process and waits for its hello. Stop interrupts it.
func (p *Pool) startProcess() (*process, error) {
	started, err := startProcess(p.opts.Memory, p.program)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.processes[started] = false
	stopped := p.stopping() // Stop kills the processes that it finds, so a later one must check
	p.mu.Unlock()
	if stopped {
		started.kill()
	} else {
		err = started.hello()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stopped || err != nil && p.stopping():
		err = errStopped
	case err == nil:
		p.processes[started] = true
		return started, nil
	}
	delete(p.processes, started)
	return nil, err
}

// stopping reports whether Stop was called.
func (p *Pool) stopping() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}
