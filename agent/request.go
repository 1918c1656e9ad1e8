package agent

import "sync"

// verdict is what becomes of a check request.
type verdict string

const (
	accepted   verdict = "accepted"
	duplicate  verdict = "duplicate"   // the agent has several of the check's subscriptions, and got it for each
	outdated   verdict = "outdated"    // issued before one that was accepted
	inProgress verdict = "in_progress" // the check still runs
)

// requestLog decides which check requests to take. It remembers for the life of the process when each check was last
// issued, so a backend that repeats itself after a reconnect is not obeyed twice.
type requestLog struct {
	mu     sync.Mutex // guards checks
	checks map[string]requested
}

type requested struct {
	issued  int64 // Unix seconds; 0 for none yet
	running bool
}

// take decides about a request and notes it if it is accepted; done must then be called.
func (l *requestLog) take(check string, issued int64) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.checks[check]
	switch {
	case known && issued < last.issued:
		return outdated
	case known && issued == last.issued:
		return duplicate
	case last.running:
		return inProgress
	}
	l.checks[check] = requested{issued: issued, running: true}
	return accepted
}

// done notes that an accepted request has been dealt with.
func (l *requestLog) done(check string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks[check] = requested{issued: l.checks[check].issued}
}
