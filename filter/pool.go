package filter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// PoolOptions are a Pool's settings.
type PoolOptions struct {
	// Memory is how much memory a worker may take, in bytes. Default 256 MiB.
	Memory int64
	// Idle is after how long without a question a worker ends. The first stays. Default 1 min.
	Idle time.Duration
	// MaxPause bounds the pause before a worker that died is started again. Pauses begin at a tenth of a second and double.
	// Default 10 s.
	MaxPause   time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// lane is whom a worker serves. What is new, was slow or was there when a worker died waits for others of its kind only.
type lane int

const (
	laneQuick    lane = iota // filters, and expressions about entities, that were quick before
	laneNew                  // those that are new, or were slow
	laneMutator              // mutators that were quick before
	laneMutators             // those that are new, or were slow
	laneSuspect              // suspects
	lanes
)

// workersOf is how many workers each lane has at most. They are started when they are needed.
var workersOf = [lanes]int{laneQuick: 2, laneNew: 1, laneMutator: 1, laneMutators: 1, laneSuspect: 1}

const (
	// maxDeaths is how many workers a source may take with it in deathMemory until it is set aside.
	maxDeaths, deathMemory = 3, time.Hour
	// sweepEvery is how often suspects are forgotten whose deaths are long ago.
	sweepEvery = time.Minute
	// maxSuspects bounds the sources whose deaths are remembered.
	maxSuspects = 10_000
	// maxBatch is how many questions a worker gets at once, and maxBatchBytes how large they may be together.
	maxBatch, maxBatchBytes = 32, 256 << 10
	// maxKnown is how many definitions a worker has before it starts with none again.
	maxKnown = 2000
	// firstPause is the pause after the first of several deaths; steady is how long a worker must live to begin again with it.
	firstPause, steady = 100 * time.Millisecond, time.Minute
)

// Pool runs expressions and mutators that users wrote in processes of their own: what one of them does to its process, it does
// not do to the backend. DESIGN.md has the protocol.
type Pool struct {
	opts    PoolOptions
	program string // what workers run; tests replace it
	log     *slog.Logger
	rare    *rarelog.Log
	metrics poolMetrics
	queues  [lanes]chan *asked
	quick   []*slot // of laneQuick
	stop    chan struct{}
	wg      sync.WaitGroup
	stopped sync.Once

	lifecycle sync.Mutex // held by Start
	started   atomic.Bool
	failing   atomic.Pointer[error] // why no worker can be started

	suspected atomic.Int32 // how many suspects there are, so that the path needs no lock while there are none
	mu        sync.Mutex   // guards the fields below
	suspects  map[suspectKey]*suspect
	swept     time.Time         // when old suspects were forgotten
	processes map[*process]bool // those that have said hello, and those that have not
}

type poolMetrics struct {
	workers, aside           prometheus.Gauge
	deaths                   *prometheus.CounterVec
	retries, questions, lost prometheus.Counter
}

// asked is a question on its way.
type asked struct {
	def      *definition
	body     []byte        // of frameQuestion
	patience time.Duration // how long the worker may take
	look     func(body []byte) []byte
	answer   chan answered // takes one
}

// answered is the body of an answer, or why there is none.
type answered struct {
	body []byte
	err  error
}

var (
	errStopped = errors.New("expressions are not run any more: the backend stops")
	errAside   = errors.New("it is set aside: three worker processes died of it; change it")
	errNoPool  = errors.New("there are no workers to run it")
)

// diedError is a question that had no answer because its worker ended.
type diedError struct {
	blame bool // no other question was with it, and the process was not ended from outside
	why   string
}

func (e *diedError) Error() string { return "it ended its worker process: " + e.why }

// NewPool returns a pool that has to be started.
func NewPool(opts PoolOptions) (*Pool, error) {
	if opts.Memory < 0 || opts.Idle < 0 || opts.MaxPause < 0 {
		return nil, errors.New("filter: Memory, Idle and MaxPause must not be negative")
	}
	if opts.Memory == 0 {
		opts.Memory = 256 << 20
	}
	if opts.Idle == 0 {
		opts.Idle = time.Minute
	}
	if opts.MaxPause == 0 {
		opts.MaxPause = 10 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	log := opts.Logger.With("component", "filter")
	p := &Pool{
		opts: opts, program: workerPath, log: log, rare: rarelog.New(log), stop: make(chan struct{}), suspects: map[suspectKey]*suspect{}, processes: map[*process]bool{},
		metrics: poolMetrics{
			workers:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_expression_workers", Help: "Processes that run expressions and mutators of users."}),
			aside:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_expression_set_aside", Help: "Expressions and mutators that are not run any more, because three worker processes died of each."}),
			deaths:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_expression_worker_deaths_total", Help: "Worker processes that ended while they ran something, were killed because it took too long, ended for another reason, or could not be started."}, []string{"reason"}),
			retries:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_expression_retries_total", Help: "Expressions and mutators that were asked again on another worker, because theirs died."}),
			questions: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_expression_questions_total", Help: "Questions to worker processes: a filter or a mutator about an event, or an expression about an entity."}),
			lost:      prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_expression_unanswered_total", Help: "Questions without an answer, because their worker died, none was free in time, or none can be started."}),
		},
	}
	for _, reason := range []string{"died", "timeout", "ended", "start"} {
		p.metrics.deaths.WithLabelValues(reason)
	}
	if r := opts.Registerer; r != nil {
		r.MustRegister(p.metrics.workers, p.metrics.aside, p.metrics.deaths, p.metrics.retries, p.metrics.questions, p.metrics.lost)
	}
	for i := range p.queues {
		p.queues[i] = make(chan *asked)
	}
	return p, nil
}

// Start starts the first worker. That none can be started is no error: Err says so, and another try is made.
func (p *Pool) Start(context.Context) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if p.started.Load() {
		return errors.New("filter: the pool was started already")
	}
	for of, n := range workersOf {
		for i := range n {
			w := &slot{pool: p, queue: p.queues[of], several: of == int(laneQuick), keep: of == int(laneQuick) && i == 0}
			if w.keep {
				w.idle(false)
			}
			if w.several {
				p.quick = append(p.quick, w)
			}
			p.wg.Go(w.run)
		}
	}
	p.started.Store(true) // those who see it see p.quick
	return nil
}

// Stop ends all workers, and with them what they do. It may be called twice.
func (p *Pool) Stop() error {
	p.stopped.Do(func() {
		close(p.stop)
		p.mu.Lock()
		for process := range p.processes {
			process.cmd.Process.Kill() //nolint:errcheck // it may have ended
		}
		p.mu.Unlock()
	})
	p.lifecycle.Lock() // Start adds no goroutines meanwhile
	defer p.lifecycle.Unlock()
	p.wg.Wait()
	return nil
}

// Err says why expressions of users cannot be run, or nil.
func (p *Pool) Err() error {
	if why := p.failing.Load(); why != nil {
		return fmt.Errorf("expressions of filters and mutators cannot be run, and are ignored: %w", *why)
	}
	return nil
}

// ask asks a question and returns the body of the answer. It waits for a free worker for a time.
func (p *Pool) ask(ctx context.Context, of lane, a *asked, wait time.Duration) ([]byte, error) {
	if p == nil || !p.started.Load() {
		return nil, errNoPool
	}
	p.metrics.questions.Inc()
	a.answer = make(chan answered, 1)
	if of != laneQuick || !p.atOnce(a) {
		if err := p.enqueue(ctx, of, a, wait); err != nil {
			return nil, err
		}
	}
	got := <-a.answer // a worker that has a question answers it in its time, or is killed
	if got.err != nil {
		p.metrics.lost.Inc()
	}
	return got.body, got.err
}

// enqueue waits until a worker has the question.
func (p *Pool) enqueue(ctx context.Context, of lane, a *asked, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case p.queues[of] <- a:
		return nil
	case <-timer.C:
		p.metrics.lost.Inc()
		return errBusy
	case <-ctx.Done():
		return ctx.Err()
	case <-p.stop:
		return errStopped
	}
}

// atOnce asks a quick worker that is idle, without the turns of goroutines that a queue costs.
func (p *Pool) atOnce(a *asked) bool {
	for _, s := range p.quick {
		if !s.mu.TryLock() {
			continue
		}
		ready := s.process != nil && !s.process.gone()
		if ready {
			s.batch = append(s.batch[:0], a)
			s.serve()
		}
		s.mu.Unlock()
		if ready {
			return true
		}
	}
	return false
}

// slot is the place of one worker: a process, or the pause until the next.
type slot struct {
	pool    *Pool
	queue   chan *asked
	several bool // it asks several questions at once
	keep    bool // it has a process even if nothing is asked

	mu      sync.Mutex // guards the fields below
	process *process
	began   time.Time
	used    time.Time // when the last question came
	died    int       // deaths in a row
	batch   []*asked
	out     []byte
	writing chan error // takes what became of writing s.out; nil if nothing is being written
}

func (s *slot) run() {
	defer s.idle(true)
	for {
		if !s.pause() {
			return
		}
		idle := time.NewTimer(s.pool.opts.Idle)
		select {
		case a := <-s.queue:
			s.mu.Lock()
			s.collect(a)
			s.serve()
			s.mu.Unlock()
		case <-idle.C:
			s.idle(false)
		case <-s.ended():
			s.idle(false)
		case <-s.pool.stop:
			idle.Stop()
			return
		}
		idle.Stop()
	}
}

// idle ends a process that nothing was asked of for long, or at the end.
func (s *slot) idle(end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.gone() {
		s.lost("ended", s.process.why(nil))
	}
	switch {
	case end || !s.keep && time.Since(s.used) >= s.pool.opts.Idle:
		s.end((*process).close)
	case s.keep:
		s.start() //nolint:errcheck // Err tells
	}
}

// ended is closed when the process has ended that is there now.
func (s *slot) ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	return s.process.ended
}

// pause waits after deaths, longer after each. It reports whether to go on.
func (s *slot) pause() bool {
	s.mu.Lock()
	died, there := s.died, s.process != nil
	s.mu.Unlock()
	if there || died < 2 {
		return true
	}
	timer := time.NewTimer(min(firstPause<<min(died-2, 16), s.pool.opts.MaxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		if s.keep {
			s.idle(false)
		}
		return true
	case <-s.pool.stop:
		return false
	}
}

// start makes sure that there is a process.
func (s *slot) start() error {
	if s.process != nil {
		if !s.process.gone() {
			return nil
		}
		s.lost("ended", s.process.why(nil))
	}
	started, err := s.pool.startProcess()
	if errors.Is(err, errStopped) {
		return err
	}
	if err != nil {
		err = fmt.Errorf("start a worker process: %w", err)
		s.died++
		s.pool.metrics.deaths.WithLabelValues("start").Inc()
		s.pool.failing.Store(&err)
		s.pool.rare.Error("worker for expressions cannot be started", "", "err", err)
		return err
	}
	s.pool.failing.Store(nil)
	s.pool.metrics.workers.Inc()
	s.process, s.began = started, time.Now()
	return nil
}

// startProcess starts a process and waits for its hello. Stop ends that.
func (p *Pool) startProcess() (*process, error) {
	started, err := startProcess(p.opts.Memory, p.program)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.processes[started] = false
	stopped := p.stopping() // Stop kills what it finds, so what comes later must look
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

// end ends the process, if there is one.
func (s *slot) end(how func(*process)) {
	if s.process == nil {
		return
	}
	s.pool.mu.Lock()
	delete(s.pool.processes, s.process)
	s.pool.mu.Unlock()
	how(s.process)
	s.pool.metrics.workers.Dec()
	s.process = nil
}

// lost counts a process that died.
func (s *slot) lost(reason, why string) {
	s.end((*process).kill)
	if time.Since(s.began) > steady {
		s.died = 0
	}
	s.died++
	if !s.pool.stopping() { // otherwise Stop killed it
		s.pool.metrics.deaths.WithLabelValues(reason).Inc()
		s.pool.rare.Warn("worker for expressions died", reason, "reason", reason, "err", why)
	}
}

// collect takes what else waits, if it may be asked together.
func (s *slot) collect(first *asked) {
	s.batch = append(s.batch[:0], first)
	for size := s.size(first); s.several && len(s.batch) < maxBatch && size < maxBatchBytes; {
		select {
		case a := <-s.queue:
			s.batch = append(s.batch, a)
			size += s.size(a)
		default:
			return
		}
	}
}

// size is about how many bytes a question has, with its definition if the process does not have that.
func (s *slot) size(a *asked) int {
	if s.process != nil {
		if _, ok := s.process.known[a.def.hash]; ok {
			return len(a.body)
		}
	}
	return len(a.body) + len(a.def.body)
}

// serve asks the questions of a batch, and answers each.
func (s *slot) serve() {
	if err := s.start(); err != nil {
		none := errNoPool
		if errors.Is(err, errStopped) {
			none = errStopped
		}
		for _, a := range s.batch {
			a.answer <- answered{err: none}
		}
		return
	}
	s.used = time.Now()
	first := s.process.asked + 1
	err := s.write()
	for i, a := range s.batch {
		var body []byte
		if err == nil {
			body, err = s.answer(a, first+uint64(i))
		}
		if err != nil {
			s.fail(s.batch[i:], err)
			break
		}
		a.answer <- answered{body: body}
	}
	if err := s.wrote(); err != nil && s.process != nil {
		s.fail(nil, err)
	}
	clear(s.batch)
	if cap(s.out) > 1<<20 {
		s.out = nil
	}
}

// write writes a batch. What may fill the pipe is written by another goroutine while this one reads the answers: a worker
// that waits until its answers are read takes no questions.
func (s *slot) write() error {
	s.out = s.out[:0]
	if len(s.process.known) > maxKnown {
		clear(s.process.known)
		s.out = endFrame(frame(s.out, frameForget), 0)
	}
	patience := goodbyeTime
	for _, a := range s.batch {
		patience += a.patience
		if _, ok := s.process.known[a.def.hash]; !ok {
			s.process.known[a.def.hash] = struct{}{}
			at := len(s.out)
			s.out = endFrame(append(append(frame(s.out, frameDefine), a.def.hash[:]...), a.def.body...), at)
		}
		at := len(s.out)
		s.process.asked++
		s.out = endFrame(append(numbered(s.out, frameQuestion, s.process.asked), a.body...), at)
	}
	deadline := time.Now().Add(patience)
	if len(s.batch) == 1 || len(s.out) <= pipeTakes { // a worker reads a question as a whole before it writes
		return s.process.write(s.out, deadline)
	}
	of, out, done := s.process, s.out, make(chan error, 1)
	s.writing = done
	go func() { done <- of.write(out, deadline) }()
	return nil
}

// wrote waits until the batch is written. The caller knows that the worker reads, has read everything, or is dead.
func (s *slot) wrote() error {
	if s.writing == nil {
		return nil
	}
	err := <-s.writing
	s.writing = nil
	return err
}

// answer waits for the answer to a question, and looks up for it what it needs. Later questions of the batch may be on
// their way to the worker, who puts them aside while it waits for what it looks up.
func (s *slot) answer(a *asked, number uint64) ([]byte, error) {
	deadline := time.Now().Add(a.patience)
	for {
		kind, body, err := s.process.read(deadline)
		if err != nil {
			return nil, err
		}
		body, ok := isFor(body, number)
		switch {
		case !ok: // an answer to another question must not be taken for this one's
			return nil, errFrame
		case kind == frameAnswer:
			return slices.Clone(body), nil
		case kind != frameLook || a.look == nil:
			return nil, errFrame
		}
		begin := time.Now()
		reply := endFrame(append(numbered(nil, frameEvents, number), a.look(body)...), 0)
		if err := s.wrote(); err != nil {
			return nil, err
		}
		deadline = deadline.Add(time.Since(begin)) // it is not the script that took it
		s.process.late = true                      // later questions may be in the pipe, so that even a short reply may wait
		if err := s.process.write(reply, time.Now().Add(goodbyeTime)); err != nil {
			return nil, err
		}
	}
}

// fail ends the process and answers the questions that have no answer.
func (s *slot) fail(left []*asked, err error) {
	of := s.process
	s.end((*process).kill)
	reason, why := "ended", of.why(err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = "timeout"
	case of.cmd.ProcessState.Exited() || errors.Is(err, errFrame):
		reason = "died" // what others do to it is a signal
	}
	s.wrote() //nolint:errcheck // the process is dead, so this ends, and with an error
	s.lost(reason, why)
	died := &diedError{blame: len(s.batch) == 1 && reason != "ended", why: why}
	for _, a := range left {
		a.answer <- answered{err: died}
	}
}
