package session

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	lookEvery   = 250 * time.Millisecond
	worseAfter  = time.Second     // a shorter pressure changes nothing
	betterAfter = 3 * time.Second // so that agents do not switch back and forth
	slowBatches = 5 * time.Second // between two batches of an agent at the slow pace
	slowLag     = 2 * time.Second
	slowWait    = lookEvery       // of an append for room in the log
	slowLarge   = 2 * time.Second // of an append of a large record, which may wait longer
	goLag       = 500 * time.Millisecond
	slowUnread  = time.Second // a backend that keeps up has read all arrived data more than ten times in this time
)

// pacing decides on the pace of lapwing agents: spool while the log takes no events, slow while the log or the fold
// cannot keep up, go otherwise. The pace slows down when there was a reason for a second, and speeds up by one step
// when there was none for three seconds: spooled events come slowly at first.
type pacing struct {
	pace          wire.Pace
	worse, better time.Time // since when the pressure calls for a slower or faster pace; zero if it does not
}

// look updates the pace from the pressure, and reports whether the pace has changed.
func (p *pacing) look(now time.Time, q Pressure) bool {
	lasts := func(since *time.Time, yes bool, long time.Duration) bool {
		switch {
		case !yes:
			*since = time.Time{}
		case since.IsZero():
			*since = now
		}
		return yes && now.Sub(*since) >= long
	}
	want := wanted(q)
	stays := p.pace == wire.PaceSlow && want == wire.PaceGo && q.Lag >= goLag
	worse := lasts(&p.worse, want > p.pace, worseAfter)
	better := lasts(&p.better, want < p.pace && !stays, betterAfter)
	switch {
	case worse:
		p.pace = want
	case better:
		p.pace--
	default:
		return false
	}
	p.worse, p.better = time.Time{}, time.Time{}
	return true
}

func wanted(q Pressure) wire.Pace {
	switch {
	case q.Err != nil:
		return wire.PaceSpool
	case q.Waited >= slowWait || q.LargeWaited >= slowLarge || q.Lag >= slowLag || q.Unread >= slowUnread:
		return wire.PaceSlow
	}
	return wire.PaceGo
}

// unread returns for how long there has always been something to read.
func (s *Server) unread(now time.Time) (longest time.Duration) {
	for _, p := range s.pollers {
		longest = max(longest, p.Behind(now))
	}
	return longest
}

// watchPressure sets the agents' pace until ctx ends. At any pace but go, requests are held back too; see hold.
func (s *Server) watchPressure(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var p pacing
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		q, now := s.opts.Pressure(), time.Now()
		s.opts.Intake.LookAtClock(now)
		q.Unread = max(q.Unread, s.unread(now))
		if before := p.pace; p.look(now, q) {
			s.log.Warn("pace of agents changed", "pace", p.pace.String(), "before", before.String(),
				"waited_seconds", q.Waited.Seconds(), "large_waited_seconds", q.LargeWaited.Seconds(),
				"lag_seconds", q.Lag.Seconds(), "unread_seconds", q.Unread.Seconds(), "err", q.Err)
			if (before == wire.PaceSpool) != (p.pace == wire.PaceSpool) {
				s.opts.Intake.SetHearing(p.pace != wire.PaceSpool, now)
			}
			s.setOverloaded(before, p.pace, now)
			s.setPace(p.pace)
		}
	}
}

// setOverloaded records when an overload begins and ends.
func (s *Server) setOverloaded(before, pace wire.Pace, now time.Time) {
	switch {
	case before == wire.PaceGo:
		s.opts.Intake.SetAsking(false, now)
		s.metrics.overloaded.Set(float64(now.UnixMilli()) / 1000)
	case pace == wire.PaceGo:
		s.opts.Intake.SetAsking(true, now)
		s.metrics.overloaded.Set(0)
	}
}

// Overloaded reports whether requests for agents are held back.
func (s *Server) Overloaded() bool { return s.pace() != wire.PaceGo }

// pace returns the present pace of lapwing agents.
func (s *Server) pace() wire.Pace { return wire.Pace(s.paced.Load()) }

// setPace sends a pace to all lapwing agents: at once if they are to slow down, else at each agent's moment, so that
// they do not all come back at the same time.
func (s *Server) setPace(pace wire.Pace) {
	s.paced.Store(uint32(pace))
	s.metrics.pace.Set(float64(pace))
	s.metrics.paceChanges.WithLabelValues(pace.String()).Inc()
	s.registry.each(func(one *session) {
		switch {
		case !one.lapwing:
		case pace == wire.PaceSpool:
			s.pacer.now(one)
		default:
			s.pacer.turn(one)
		}
	})
}
