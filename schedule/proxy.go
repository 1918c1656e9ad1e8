package schedule

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/substitute"
)

const (
	// defaultCoverage is the part of its period, in percent, over which a run is spread that does not say.
	defaultCoverage = 90
	// atOnce is how many requests a run without splay publishes in a second: an agent that gets all of them keeps up, and
	// its queue takes them.
	atOnce = 500
	// maxLag is how much too late a request may be before those that follow are put off too, so that a pause of this machine
	// does not end with all of them at once.
	maxLag = 2 * time.Second
	// minPeriod is the shortest period of a cron that runs are spread over.
	minPeriod = 5 * time.Second
	// matchBudget is how long a run may take to find whom it is for.
	matchBudget = 30 * time.Second
	// matchAtOnce is about how many entities an expression is asked at once.
	matchAtOnce = 256
)

// proxies is whom a check with proxy requests is run for. It is used by one run at a time.
type proxies struct {
	of          resource.ProxyRequests
	expressions []*filter.EntityExpression
	broken      bool // there is no expression, or none that can be read: nobody matches

	mu    sync.Mutex // held by the run that finds out
	known []match
}

// match is whether an entity's definition, which never changes, matches.
type match struct {
	entity  *resource.EntityConfig
	matches bool
	again   bool // there was no answer
}

func (s *Scheduler) newProxies(c *resource.CheckConfig) *proxies {
	p := &proxies{of: *c.ProxyRequests}
	for _, text := range p.of.EntityAttributes {
		x, err := s.opts.Compile(c.Metadata.Namespace, c.Metadata.Name, text)
		if err != nil {
			s.metrics.proxyErrors.WithLabelValues("expression").Inc()
			s.rare.Warn("expression of proxy requests is ignored", c.Metadata.Namespace+"/"+c.Metadata.Name,
				"namespace", c.Metadata.Namespace, "check", c.Metadata.Name, "err", err)
			continue
		}
		p.expressions = append(p.expressions, x)
	}
	p.broken = len(p.expressions) == 0
	return p
}

// same says whether a changed check is for the same entities as before.
func (p *proxies) same(c *resource.CheckConfig) bool {
	return slices.Equal(p.of.EntityAttributes, c.ProxyRequests.EntityAttributes)
}

// matching returns the entities that match, in the order of their names. Only those whose definition is not the one of the
// last time are asked again: what costs is the expressions.
func (s *Scheduler) matching(ctx context.Context, c *resource.CheckConfig, p *proxies) []*resource.EntityConfig {
	if p.broken {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known, old := make([]match, 0, len(p.known)), p.known
	var ask []int // those in known that have to be asked
	for e := range s.defs.entities(c.Metadata.Namespace) {
		for len(old) > 0 && old[0].entity.Metadata.Name < e.Metadata.Name {
			old = old[1:]
		}
		m := match{entity: e}
		if len(old) > 0 && old[0].entity == e {
			m.matches = old[0].matches
		} else {
			ask = append(ask, len(known))
		}
		known = append(known, m)
	}
	if !s.matchNew(ctx, c, p, known, ask) {
		return nil
	}
	var out []*resource.EntityConfig
	for _, m := range known {
		if m.matches {
			out = append(out, m.entity)
		}
	}
	p.known = slices.DeleteFunc(known, func(m match) bool { return m.again })
	return out
}

// matchNew asks about the entities that are numbered, some at a time. It gives up at the end of the run, or of its time.
func (s *Scheduler) matchNew(ctx context.Context, c *resource.CheckConfig, p *proxies, known []match, ask []int) bool {
	begin := time.Now()
	var failed error
	for some := range slices.Chunk(ask, matchAtOnce) {
		if ctx.Err() != nil {
			return false
		}
		if time.Since(begin) > matchBudget {
			s.rare.Error("run for proxy entities is given up: its expressions take too long", c.Metadata.Namespace+"/"+c.Metadata.Name,
				"namespace", c.Metadata.Namespace, "check", c.Metadata.Name)
			s.metrics.proxyErrors.WithLabelValues("expression").Inc()
			return false
		}
		for _, x := range p.expressions { // each asks only about those for which the ones before were true
			list := make([]*resource.EntityConfig, len(some))
			for i, at := range some {
				list[i] = known[at].entity
			}
			var left []int
			for i, m := range x.MatchAll(list) {
				at := some[i]
				if m.Err != nil {
					failed = m.Err
					s.metrics.proxyErrors.WithLabelValues("expression").Inc()
				}
				known[at].matches, known[at].again = m.True, !m.Answered
				if m.True {
					left = append(left, at)
				}
			}
			some = left
		}
	}
	if failed != nil {
		s.rare.Warn("entities were passed over: an expression of proxy requests fails", c.Metadata.Namespace+"/"+c.Metadata.Name,
			"namespace", c.Metadata.Namespace, "check", c.Metadata.Name, "err", failed)
	}
	return true
}

// run is the requests of one tick for all entities that match.
type run struct {
	config *resource.CheckConfig
	// subscriptions are whose agents are asked.
	subscriptions []string
	parts         parts
	proxies       *proxies
	begin         time.Time     // the tick, on a whole second
	period        time.Duration // until the next one
	issued        int64         // of the first request, Unix seconds; those of later seconds carry theirs
	pick          bool
	ordinal       uint64
	cancel        func()
	done          chan struct{}
}

// fireProxies begins the run of a tick. If the last one is not through, the tick is skipped, as if the scheduler had been late.
func (s *Scheduler) fireProxies(j *job, tick, now int64) {
	issued := j.issue(tick, now)
	if j.run != nil {
		select {
		case <-j.run.done:
		default:
			s.metrics.missed.Inc()
			s.rare.Warn("tick skipped: the last run for proxy entities is not through",
				j.config.Metadata.Namespace+"/"+j.config.Metadata.Name, "namespace", j.config.Metadata.Namespace, "check", j.config.Metadata.Name)
			return
		}
	}
	s.metrics.lateness.Observe(float64(now-tick) / float64(time.Second))
	period := time.Duration(j.due - tick)
	if j.config.Cron != "" && period < minPeriod {
		period = time.Duration(j.times.Next(j.due) - tick)
	}
	if j.due == timetable.Never {
		period = 0
	}
	r := &run{
		config: j.config, subscriptions: j.config.Subscriptions, parts: j.parts, proxies: j.proxies,
		begin: time.Unix(0, tick), period: period, issued: issued,
	}
	if j.config.RoundRobin {
		r.pick, r.ordinal = true, j.times.Ordinal(tick)
	}
	j.run = r
	s.start(r)
}

// executeProxies begins a run that somebody asked for.
func (s *Scheduler) executeProxies(r *run, now time.Time) {
	c := r.config
	r.begin, r.issued = now.Truncate(time.Second), now.Unix()
	r.period = time.Duration(c.Interval) * time.Second
	if times, err := timetable.New(c, s.opts.PhaseHash); err == nil && c.Cron != "" {
		next := times.Next(now.UnixNano())
		if next-now.UnixNano() < int64(minPeriod) {
			next = times.Next(next)
		}
		if next != timetable.Never {
			r.period = time.Duration(next - now.UnixNano()).Truncate(time.Second)
		}
	}
	k := resource.NameOf(&c.Metadata)
	s.start(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.asked[k]; last != nil {
		last.cancel()
	}
	s.asked[k] = r
	for k, r := range s.asked {
		select {
		case <-r.done:
			delete(s.asked, k)
		default:
		}
	}
}

func (s *Scheduler) start(r *run) {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(s.ctx)
	r.done = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil { // stopped
		r.cancel()
		close(r.done)
		return
	}
	s.runs.Go(func() {
		defer close(r.done)
		defer r.cancel()
		s.publishRun(ctx, r)
	})
}

// publishRun publishes the requests of a run, each in the second in which it is due: agents get what is due in a second
// together, at their own moments of it.
func (s *Scheduler) publishRun(ctx context.Context, r *run) {
	began := s.opts.Now()
	entities := s.matching(ctx, r.config, r.proxies)
	if len(entities) == 0 {
		return
	}
	config, err := substitute.Compile(r.config)
	if err != nil {
		s.proxyFailed(r, entities[0], len(entities), err)
		return
	}
	at := r.plan(len(entities), s.atOnce)
	shift := time.Since(began).Truncate(time.Second) // to find them took so long
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for i, e := range entities {
		due := r.begin.Add(at(i)).Truncate(time.Second).Add(shift)
		wait := due.Sub(began) - time.Since(began) // by the wall clock as it was then: to set it changes nothing for this run
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		} else if -wait > maxLag {
			shift += (-wait).Truncate(time.Second)
		}
		if ctx.Err() != nil {
			return
		}
		c, err := config.For(substitute.EntityConfig(e))
		if err != nil {
			if failures++; failures == 1 {
				defer func() { s.proxyFailed(r, e, failures, err) }()
			}
			continue
		}
		c.Scheduler, c.ProxyEntityName = "", e.Metadata.Name
		s.metrics.requests.Inc()
		s.opts.Publish(Request{
			Namespace:     c.Metadata.Namespace,
			Subscriptions: r.subscriptions,
			Pick:          r.pick,
			// One agent after the other, going on where the last run of as many entities ended.
			Ordinal: r.ordinal*uint64(len(entities)) + uint64(i),
			Tick:    due,
			Request: r.parts.request(c, max(r.issued, due.Unix())),
		})
	}
}

func (s *Scheduler) proxyFailed(r *run, e *resource.EntityConfig, n int, err error) {
	s.metrics.proxyErrors.WithLabelValues("tokens").Add(float64(n))
	s.rare.Warn("entities were passed over: tokens of the check cannot be replaced",
		r.config.Metadata.Namespace+"/"+r.config.Metadata.Name, "namespace", r.config.Metadata.Namespace,
		"check", r.config.Metadata.Name, "entity", e.Metadata.Name, "entities", n, "err", err)
}

// plan is when each of n requests is due, from the run's begin. With splay they are spread evenly over the part of the period
// that is covered, and over before the next tick. Without they leave at once, but so that whoever gets all of them keeps up.
func (r *run) plan(n, atOnce int) func(i int) time.Duration {
	if r.config.ProxyRequests.Splay && r.period > 0 {
		coverage := r.config.ProxyRequests.SplayCoverage
		if coverage == 0 {
			coverage = defaultCoverage
		}
		gap := r.period * time.Duration(coverage) / 100 / time.Duration(n)
		last := r.period - time.Second
		return func(i int) time.Duration { return min(gap*time.Duration(i+1), last) }
	}
	second := atOnce
	if within := int(r.period * defaultCoverage / 100 / time.Second); within > 0 {
		second = max(second, (n+within-1)/within)
	}
	return func(i int) time.Duration { return time.Duration(i/second) * time.Second }
}
