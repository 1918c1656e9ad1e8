package filter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// slot is a place for one worker: a process, or none until a question comes.
type slot struct {
	pool    *Pool
	queue   *queue
	work    chan *asked // takes one question, from the queue
	several bool        // it sends several questions at once
	keep    bool        // it keeps a process when idle
	lent    atomic.Bool // a caller uses it directly, so the queue gives it no question

	mu       sync.Mutex // guards the fields below
	process  *process
	used     time.Time // when the last question came
	failures int       // failed starts in a row
	next     time.Time // when the next start may be tried
	batch    []*asked
	out      []byte
	writing  chan error // takes the result of writing s.out; nil if nothing is being written
}

func (s *slot) run() {
	defer s.idle(true)
	for {
		a := s.queue.take(s)
		if a == nil {
			var stopped bool
			if a, stopped = s.wait(); stopped {
				if a != nil {
					a.answer <- answered{err: errStopped}
				}
				return
			}
		}
		if a == nil {
			s.idle(false)
			continue
		}
		s.mu.Lock()
		s.collect(a)
		s.serve()
		s.mu.Unlock()
	}
}

// wait waits for a question. It returns nil if there is something else to do.
func (s *slot) wait() (a *asked, stopped bool) {
	ended, pause := s.waits()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case a = <-s.work:
		return a, false
	case <-timer.C:
	case <-ended:
	case <-s.pool.stop:
		stopped = true
	}
	return s.queue.leave(s), stopped
}

// waits returns a channel that is closed when the present process has ended, and the time until the slot must check its
// process.
func (s *slot) waits() (<-chan struct{}, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.process != nil:
		return s.process.ended, s.pool.opts.Idle
	case s.keep:
		return nil, max(time.Until(s.next), time.Millisecond)
	}
	return nil, s.pool.opts.Idle
}

// idle ends a process that had no question for long, or any at the end. The slot that always keeps one starts it if
// needed.
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

// start makes sure that there is a process. After a failed start it refuses to try again during a pause.
func (s *slot) start() error {
	if s.process != nil {
		if !s.process.gone() {
			return nil
		}
		s.lost("ended", s.process.why(nil))
	}
	if time.Now().Before(s.next) {
		return errNoPool
	}
	started, err := s.pool.startProcess()
	if errors.Is(err, errStopped) {
		return err
	}
	if err != nil {
		s.failed(fmt.Errorf("start a worker process: %w", err))
		return errNoPool
	}
	s.failures = 0
	s.pool.failing.Store(nil)
	s.pool.metrics.workers.Inc()
	s.process = started
	return nil
}

// failed notes that no process can be started. The pauses between attempts grow.
func (s *slot) failed(err error) {
	now := time.Now()
	s.next = now.Add(min(firstStart<<min(s.failures, 16), s.pool.opts.MaxPause))
	s.failures++
	since := now
	if before := s.pool.failing.Load(); before != nil {
		since = before.since
	}
	s.pool.failing.Store(&failure{err, since})
	s.pool.metrics.deaths.WithLabelValues("start").Inc()
	s.pool.rare.Error("cannot start a worker for expressions", "", "err", err)
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

// lost counts a process that died. The next question starts another at once: the source to blame is paused, not the
// slot.
func (s *slot) lost(reason, why string) {
	s.end((*process).kill)
	if !s.pool.stopping() { // otherwise Stop killed it
		s.pool.metrics.deaths.WithLabelValues(reason).Inc()
		s.pool.rare.Warn("worker for expressions died", reason, "reason", reason, "err", why)
	}
}

// collect takes more waiting questions, if they may be sent together.
func (s *slot) collect(first *asked) {
	s.batch = append(s.batch[:0], first)
	for size := s.size(first); s.several && len(s.batch) < maxBatch && size < maxBatchBytes; {
		a := s.queue.more()
		if a == nil {
			return
		}
		s.batch = append(s.batch, a)
		size += s.size(a)
	}
}

// size estimates the bytes of a question, with its definition if the process does not have it.
func (s *slot) size(a *asked) int {
	if s.process != nil {
		if _, ok := s.process.known[a.def.hash]; ok {
			return len(a.body)
		}
	}
	return len(a.body) + len(a.def.body)
}

// serve sends the questions of a batch, and answers each.
func (s *slot) serve() {
	if s.batch[0].fresh && s.process != nil && s.process.asked > 0 {
		s.end((*process).kill) // it has nothing to do
	}
	if err := s.start(); err != nil {
		for _, a := range s.batch {
			s.reply(a, answered{err: err})
		}
		clear(s.batch)
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
		s.reply(a, answered{body: body})
	}
	if err := s.wrote(); err != nil && s.process != nil {
		s.fail(nil, err)
	}
	clear(s.batch)
	if cap(s.out) > 1<<20 {
		s.out = nil
	}
}

// reply answers a question that the slot took.
func (s *slot) reply(a *asked, with answered) {
	s.queue.done(a)
	if with.err == nil && s.pool.failing.Load() != nil {
		s.pool.failing.Store(nil) // expressions run, even if another slot has no worker
	}
	a.answer <- with
}

// write writes a batch. A batch that may fill the pipe is written by another goroutine while this one reads the
// answers: a worker that waits for its answers to be read takes no questions.
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
	if len(s.batch) == 1 || len(s.out) <= pipeTakes { // a worker reads a whole question before it writes
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

// answer waits for the answer to a question, and looks up events that its script needs. Later questions of the batch
// may be on their way to the worker, which holds them back while it waits for the events.
func (s *slot) answer(a *asked, number uint64) ([]byte, error) {
	deadline := time.Now().Add(a.patience)
	for {
		kind, body, err := s.process.read(deadline)
		if err != nil {
			return nil, err
		}
		body, ok := isFor(body, number)
		switch {
		case !ok: // an answer to another question must not be mistaken for this one's
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
		deadline = deadline.Add(time.Since(begin)) // the script did not take that time
		s.process.late = true                      // later questions may fill the pipe, so even a short reply may wait
		if err := s.process.write(reply, time.Now().Add(goodbyeTime)); err != nil {
			return nil, err
		}
	}
}

// fail ends the process and answers the unanswered questions.
func (s *slot) fail(left []*asked, err error) {
	of := s.process
	used, known := processTime(of.cmd.Process.Pid)
	s.end((*process).kill)
	reason, why := "ended", of.why(err)
	blame := of.asked == 1
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = "timeout"
		// No source is to blame if the machine was too busy to run the process.
		blame = blame && (!known || used-of.born >= s.batch[0].patience/busyFactor)
	case of.cmd.ProcessState.Exited() || errors.Is(err, errFrame):
		reason = "died" // a process killed from outside has ended by a signal
	}
	s.wrote() //nolint:errcheck // the process is dead, so this ends, and with an error
	s.lost(reason, why)
	for i, a := range left {
		died := &diedError{first: i == 0, blame: blame && reason != "ended", why: why}
		s.reply(a, answered{err: died})
	}
}
