package agent

import "sync"

// verdict is what becomes of a check request, or of a tick of the schedule.
type verdict string

const (
	accepted   verdict = "accepted"
	duplicate  verdict = "duplicate"   // it ran for this second already: the agent has several of the check's subscriptions, say
	outdated   verdict = "outdated"    // issued before one that was accepted
	inProgress verdict = "in_progress" // the check still runs
)

// What else becomes of a tick.
const (
	tickSubdued = "subdued"
	tickMissed  = "missed"
)

// requestLog decides which check requests and ticks of the schedule to take. It remembers for the life of the process when
// each check was last issued, so a backend that repeats itself after a reconnect is not obeyed twice.
type requestLog struct {
	mu     sync.Mutex // guards checks
	checks map[string]requested
}

// requested holds requests and ticks apart, for they come from the clocks of two machines: only those of one clock can be
// put in order.
type requested struct {
	issued  int64 // of the newest request, Unix seconds; 0 for none yet
	ticked  int64 // of the newest tick, likewise
	running bool
}

// take decides about a request and notes it if it is accepted; done must be called when its check has run.
func (l *requestLog) take(check string, issued int64) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.checks[check]
	switch {
	case known && issued < last.issued:
		return outdated
	case known && (issued == last.issued || issued == last.ticked):
		return duplicate
	case last.running:
		return inProgress
	}
	l.checks[check] = requested{issued: issued, ticked: last.ticked, running: true}
	return accepted
}

// tick is take for a tick of the schedule.
func (l *requestLog) tick(check string, issued int64) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.checks[check]
	switch {
	case known && (issued == last.ticked || issued == last.issued):
		return duplicate
	case last.running:
		return inProgress
	}
	l.checks[check] = requested{issued: last.issued, ticked: issued, running: true}
	return accepted
}

// done notes that an accepted request or tick has been dealt with.
func (l *requestLog) done(check string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.checks[check]
	last.running = false
	l.checks[check] = last
}
