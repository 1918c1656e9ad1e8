//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
)

// A backend keeps the newest event of a pair and its last 21 results. So that it shows every event of the workload, no
// pair gets more than seriesLength: then the history of a pair has each of its events, in the order of the fold.

const (
	seriesLength  = 20
	seriesAtATime = 3  // pairs of one sender that get events by turns
	incidentEvery = 8  // steps of a sender between two incidents, on average
	resolveWithin = 12 // steps after which an incident is resolved, at most
)

// pairLog is what the workload knows of one pair.
type pairLog struct {
	Entity, Check string
	// ByAgent pairs are sent by an agent's transport, which sends an event again until it is acknowledged: each event
	// must be there once, in order. Others are sent through the API, where an event without an answer may be there, or
	// come late.
	ByAgent bool
	// Alerts says that incidents and resolutions of the pair go to the pager.
	Alerts bool
	Events []sentEvent // in the order in which they were sent
}

// sentEvent is one event of the workload. Its number is the time of its execution, which the history shows.
type sentEvent struct {
	N      int64
	Status uint32
	Acked  bool // answered with success; unknown for an agent's events, which are complete when its buffer is empty
}

func (p *pairLog) name() string { return p.Entity + "/" + p.Check }

// script draws the events of one sender. The same seed and sender make the same events.
type script struct {
	entity  string
	byAgent bool
	rng     *rand.Rand
	steps   int
	series  [seriesAtATime]*pairLog
	open    []openIncident
	logs    []*pairLog // of all pairs
}

type openIncident struct {
	log *pairLog
	due int // the step at which it is resolved
}

func newScript(seed uint64, sender int, entity string, byAgent bool) *script {
	return &script{entity: entity, byAgent: byAgent, rng: newRand(seed, sender)}
}

// next adds an event to a pair's log and returns the pair. The event is the last of the log.
func (s *script) next() *pairLog {
	s.steps++
	for i, incident := range s.open {
		if incident.due <= s.steps {
			s.open = append(s.open[:i:i], s.open[i+1:]...)
			return incident.log.add(0)
		}
	}
	if s.rng.IntN(incidentEvery) == 0 {
		log := s.newPair("incident", true)
		s.open = append(s.open, openIncident{log, s.steps + 1 + s.rng.IntN(resolveWithin)})
		return log.add(2)
	}
	turn := s.rng.IntN(seriesAtATime)
	if log := s.series[turn]; log == nil || len(log.Events) == seriesLength {
		s.series[turn] = s.newPair("series", false)
	}
	return s.series[turn].add(0)
}

func (s *script) newPair(kind string, alerts bool) *pairLog {
	log := &pairLog{Entity: s.entity, Check: fmt.Sprintf("%s-%d", kind, len(s.logs)), ByAgent: s.byAgent, Alerts: alerts}
	s.logs = append(s.logs, log)
	return log
}

func (p *pairLog) add(status uint32) *pairLog {
	p.Events = append(p.Events, sentEvent{N: int64(len(p.Events) + 1), Status: status})
	return p
}
