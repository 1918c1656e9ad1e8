package agent

import "sync"

// verdict says what is done with a check request, or with a tick of the schedule.
type verdict string

const (
	accepted verdict = "accepted"
	// it ran for this second already, for example because the agent has several of the check's subscriptions
	duplicate  verdict = "duplicate"
	outdated   verdict = "outdated"    // issued before one that was accepted
	inProgress verdict = "in_progress" // the check still runs
)

// Further verdicts on a tick.
const (
	tickSubdued = "subdued"
	tickMissed  = "missed"
)

// requestLog decides which check requests and ticks to accept. It remembers for the life of the process when each check
// was last issued, so that a request repeated after a reconnect does not run again.
type requestLog struct {
	mu     sync.Mutex // guards checks
	checks map[string]requested
}

// requested keeps requests and ticks apart: they come from the clocks of two machines, so their times cannot be
// compared.
type requested struct {
	issued  int64 // of the newest request, Unix seconds; 0 for none yet
	ticked  int64 // of the newest tick, likewise
	running bool
}

// take decides about a request and notes an accepted one. The caller must call done when its check has run.
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

// done notes that an accepted request or tick is finished.
func (l *requestLog) done(check string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.checks[check]
	last.running = false
	l.checks[check] = last
}
