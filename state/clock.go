package state

// Times of receipt and deadlines are of the clock of the backend that received the event. A deadline that was set by a
// clock that is ahead would pass late by as much. So an event that was received in the future, by the own clock, counts
// as received now, and its deadline keeps its period. One that was set by a clock that is behind passes early: before
// it counts, package intake waits for a whole period since its agent could last be heard elsewhere.

// notFuture moves a time of receipt and a deadline back if the first is in the future. A deadline of 0 is none.
func notFuture(received, due, now int64) (int64, int64) {
	ahead := received - now
	switch {
	case ahead <= 0:
		return received, due
	case due == 0:
		return now, 0
	}
	return now, due - ahead
}

// ClockSetBack must be called when the clock of this backend was set back, with the time that it shows now in Unix
// milliseconds. Deadlines that were set before do not pass late.
func (s *State) ClockSetBack(now int64) {
	for _, p := range s.parts {
		p.clockSetBack(now)
	}
}

func (p *partition) clockSetBack(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.live {
		return // goLive looks at all pairs
	}
	for slot := range p.used {
		pr := p.at(slot)
		begin := pr.received
		if pr.flags&pairMoved != 0 {
			begin = max(begin, p.listening)
		}
		if pr.flags&pairUsed == 0 || begin <= now {
			continue
		}
		pr.received = min(pr.received, now)
		if _, pr.due = notFuture(begin, pr.due, now); pr.due != 0 {
			p.state.opts.Arm(p.pairID(slot), pr.due)
		}
	}
	p.listening = min(p.listening, now)
}
