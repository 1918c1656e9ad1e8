package lateness

import (
	"context"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Of returns a function for the lateness of checks now.
func (w *Watcher) Of() func(*resource.CheckConfig) resource.CheckLateness {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh(now)
	h := w.hearing(now)
	return func(def *resource.CheckConfig) resource.CheckLateness {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.describe(resource.NameOf(&def.Metadata), h)
	}
}

// describe returns the lateness of a check. The caller holds mu.
func (w *Watcher) describe(k resource.Name, h hearing) resource.CheckLateness {
	l := resource.CheckLateness{Namespace: k.Namespace, Check: k.Name, WithoutAgent: []string{}}
	c := w.checks[k]
	if c == nil { // the check has been defined or deleted since refresh
		return l
	}
	w.count(c, h.now)
	l.LastRun = c.run.received.Load() / 1000
	switch {
	case !c.config.Publish:
		l.Summary = "not published"
		return l
	case c.plan == nil:
		l.Summary = "its interval or cron cannot be read"
		return l
	}
	if c.judge(h) == isLate {
		l.Overdue, l.Since = c.overdue.runs, c.overdue.first/int64(time.Second)
	}
	without := w.withoutAgent(k.Namespace, c.config)
	if without {
		l.WithoutAgent = c.config.Subscriptions
	}
	if c.proxies == noProxies {
		l.Summary = "no entity matches its proxy requests"
		return l
	}
	var said []string
	if l.LastRun == 0 {
		said = append(said, "never ran")
	}
	if l.Overdue > 0 && (l.LastRun > 0 || !without) {
		said = append(said, c.plan.words(l.Overdue))
	}
	l.Summary = strings.Join(said, ", ")
	if why := noAgent(c.config, without); l.Summary == "" {
		l.Summary = why
	} else if why != "" {
		l.Summary += ": " + why
	}
	return l
}

// noAgent says why no agent can run a check; "" if agents can.
func noAgent(c *resource.CheckConfig, without bool) string {
	switch {
	case len(c.Subscriptions) == 0:
		return "it has no subscriptions"
	case without && len(c.Subscriptions) == 1:
		return "no agent has subscription " + c.Subscriptions[0]
	case without:
		return "no agent has one of the subscriptions " + strings.Join(c.Subscriptions, ", ")
	}
	return ""
}

// Events returns the overdue events of a namespace, or of all for "". Only results of published checks are due: users
// and programs send other events when they like.
func (w *Watcher) Events(ctx context.Context, namespace string) (map[state.Key]resource.EventLateness, error) {
	found := map[state.Key]resource.EventLateness{}
	s := w.search()
	for pair := range w.opts.State.Pairs(namespace) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if l := s.event(&pair); l.Overdue > 0 {
			found[state.Key{Namespace: pair.Namespace, Entity: pair.Entity, Check: pair.Check}] = l
		}
	}
	return found, nil
}

// Event returns the lateness of one event. Its Overdue is 0 if the event is not late.
func (w *Watcher) Event(key state.Key) resource.EventLateness {
	s := w.search()
	for _, pair := range w.opts.State.PairsOf(key.Namespace, key.Entity) {
		if pair.Check == key.Check {
			return s.event(&pair)
		}
	}
	return resource.EventLateness{Namespace: key.Namespace, Entity: key.Entity, Check: key.Check}
}

// search finds overdue events. It copies what it needs of each check, and counts without the Watcher's mu.
type search struct {
	watcher *Watcher
	hearing hearing
	checks  map[resource.Name]*searched
}

// searched is what a search needs of a check. Events whose last runs came in the same second share an answer.
type searched struct {
	plan           *plan
	lastRun, since int64                            // Unix nanoseconds; lastRun is 0 unless the runs of all agents count for each event
	answers        map[int64]resource.EventLateness // by the last run, without names
}

func (w *Watcher) search() *search {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh(now)
	return &search{w, w.hearing(now), map[resource.Name]*searched{}}
}

// check returns what is needed of a check. Its plan is nil if the lateness of its events is not known.
func (s *search) check(k resource.Name) *searched {
	if found := s.checks[k]; found != nil {
		return found
	}
	found := &searched{answers: map[int64]resource.EventLateness{}}
	s.checks[k] = found
	s.watcher.mu.Lock()
	c := s.watcher.checks[k]
	if c == nil || c.plan == nil || c.proxies == unknownProxies {
		s.watcher.mu.Unlock()
		return found
	}
	config := c.config
	found.since = c.since
	if config.RoundRobin && config.ProxyEntityName == "" { // one agent runs it, and not each
		found.lastRun = c.lastRun()
	}
	s.watcher.mu.Unlock()
	found.plan = newPlan(config, &s.watcher.opts) // a plan is not safe for concurrent use
	return found
}

// event returns the lateness of an event. The definition of its check counts, which may be newer than the event.
func (s *search) event(pair *state.Pair) resource.EventLateness {
	l := resource.EventLateness{Namespace: pair.Namespace, Entity: pair.Entity, Check: pair.Check, LastRun: pair.Ran}
	if !pair.Published || pair.Ran == 0 {
		return l
	}
	c := s.check(resource.Name{Namespace: pair.Namespace, Name: pair.Check})
	if c.plan == nil {
		return l
	}
	lastRun := max(pair.Ran*int64(time.Second), c.lastRun)
	answer, known := c.answers[lastRun]
	if !known {
		answer = c.lateness(s.hearing, lastRun)
		c.answers[lastRun] = answer
	}
	l.Overdue, l.Since, l.Summary = answer.Overdue, answer.Since, answer.Summary
	return l
}

// lateness returns the lateness of the events whose last run came at a time.
func (c *searched) lateness(h hearing, lastRun int64) (l resource.EventLateness) {
	o := c.plan.overdueSince(max(lastRun, c.since))
	o.count(c.plan, h.now, mostOverdue)
	if o.runs > 0 && h.proves(c.plan, lastRun, &o) {
		l.Overdue, l.Since, l.Summary = o.runs, o.first/int64(time.Second), c.plan.words(o.runs)
	}
	return l
}
