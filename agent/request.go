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
	turnRuns   verdict = "turn_runs"   // the request repeats the turn that runs
	turnDone   verdict = "turn_done"   // the request repeats the last turn, whose result is on its way
	stopping   verdict = "stopping"    // the agent runs nothing any more
)

// Further verdicts on a tick.
const (
	tickSubdued = "subdued"
	tickMissed  = "missed"
)

// requestLog decides which check requests and ticks to accept. It remembers for the life of the process when each check
// was last issued, so that a request repeated after a reconnect does not run again.
type requestLog struct {
	mu      sync.Mutex // guards the fields below
	checks  map[string]requested
	stopped bool
}

// requested keeps requests and ticks apart: they come from the clocks of two machines, so their times cannot be
// compared.
type requested struct {
	issued  int64 // of the newest request, Unix seconds; 0 for none yet
	ticked  int64 // of the newest tick, likewise
	turn    turn  // of the newest run; a tick has none
	running bool
}

// take decides about a request and notes an accepted one. The caller must call done when its check has run. A turn may
// come again with a later time of issue, from a member that does not know that the agent has it.
func (l *requestLog) take(check string, issued int64, t turn) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.checks[check]
	repeats := t.repeats(last.turn)
	switch {
	case l.stopped:
		return stopping
	case repeats && last.running:
		return turnRuns
	case repeats:
		return turnDone
	case known && issued < last.issued:
		return outdated
	case known && (issued == last.issued || issued == last.ticked):
		return duplicate
	case last.running:
		return inProgress
	}
	l.checks[check] = requested{issued: issued, ticked: last.ticked, turn: t, running: true}
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

// stop lets take accept nothing any more, and returns the turns that run.
func (l *requestLog) stop() (running []turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, c := range l.checks {
		if c.running && c.turn != (turn{}) {
			running = append(running, c.turn)
		}
	}
	return running
}
