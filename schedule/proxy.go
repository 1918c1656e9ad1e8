package schedule

import (
	"context"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/substitute"
)

const (
	// defaultCoverage is the part of its period, in percent, over which a run is spread by default.
	defaultCoverage = 90
	// atOnce is how many requests a run without splay publishes per second: an agent that gets all of them keeps up,
	// and they fit its queue.
	atOnce = 500
	// maxLag is how late a request may be before the following ones are delayed too, so that a pause of this machine
	// does not end with all of them at once.
	maxLag = 2 * time.Second
	// minPeriod is the shortest period of a cron over which runs are spread.
	minPeriod = 5 * time.Second
	// matchBudget bounds the search for a run's entities.
	matchBudget = 30 * time.Second
	// matchAtOnce is about how many entities are in one question to an expression.
	matchAtOnce = 256
)

// matchNew evaluates the entities at the given indexes, some at a time. It stops at the end of the run, or of its time.
func (s *Scheduler) matchNew(ctx context.Context, c *resource.CheckConfig, p *matches, known []match, ask []int) bool {
	begin := time.Now()
	var failed error
	for some := range slices.Chunk(ask, matchAtOnce) {
		if ctx.Err() != nil {
			return false
		}
		if time.Since(begin) > matchBudget {
			s.rare.Error("run for proxy entities given up: its expressions take too long", c.Metadata.Namespace+"/"+c.Metadata.Name,
				"namespace", c.Metadata.Namespace, "check", c.Metadata.Name)
			s.metrics.proxyErrors.WithLabelValues("expression").Inc()
			return false
		}
		for _, x := range p.expressions { // each expression is evaluated only where the ones before were true
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
		s.rare.Warn("entities skipped: an expression of proxy requests fails", c.Metadata.Namespace+"/"+c.Metadata.Name,
			"namespace", c.Metadata.Namespace, "check", c.Metadata.Name, "err", failed)
	}
	return true
}

// run is the requests of one tick for all matching entities.
type run struct {
	config *resource.CheckConfig
	// subscriptions of the agents that get the requests.
	subscriptions []string
	parts         parts
	matches       *matches
	tick          time.Time
	asked         bool // by a user
	roundRobin    bool
	begin         time.Time     // of the requests, on a whole second
	period        time.Duration // until the next tick
	issued        int64         // of the first request, Unix seconds; later requests carry their own second
	cancel        func()
	done          chan struct{}
}

// fireProxies begins the run of a tick. If the previous run is not finished, the tick is skipped and counted.
func (s *Scheduler) fireProxies(j *job, tick, now int64) {
	issued := j.issue(tick, now)
	if j.run != nil {
		select {
		case <-j.run.done:
		default:
			s.metrics.missed.Inc()
			s.rare.Warn("tick skipped: the last run for proxy entities is not finished",
				j.config.Metadata.Namespace+"/"+j.config.Metadata.Name, "namespace", j.config.Metadata.Namespace, "check", j.config.Metadata.Name)
			return
		}
	}
	s.metrics.lateness.Observe(float64(now-tick) / float64(time.Second))
	period := distance(tick, j.due)
	if j.config.Cron != "" && period > 0 && period < minPeriod {
		period = time.Duration(j.times.Next(j.due) - tick)
	}
	r := &run{
		config: j.config, subscriptions: j.config.Subscriptions, parts: j.parts, matches: j.matches,
		tick: time.Unix(0, tick), roundRobin: j.config.RoundRobin, begin: time.Unix(0, tick), period: period, issued: issued,
	}
	j.run = r
	s.retain(r.matches)
	s.start(r)
}

// executeProxies begins a run that a user requested.
func (s *Scheduler) executeProxies(r *run, now time.Time) {
	c := r.config
	r.begin = now.Truncate(time.Second)
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

// start begins a run, which releases its matches.
func (s *Scheduler) start(r *run) {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(s.ctx)
	r.done = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil { // stopped
		s.release(r.matches)
		r.cancel()
		close(r.done)
		return
	}
	s.runs.Go(func() {
		defer close(r.done)
		defer r.cancel()
		defer s.release(r.matches)
		s.publishRun(ctx, r)
	})
}

// publishRun publishes the requests of a run, each in the second in which it is due: an agent gets the requests of one
// second together, at its own moment.
func (s *Scheduler) publishRun(ctx context.Context, r *run) {
	began := s.opts.Now()
	entities := s.matching(ctx, r.config, r.matches)
	if len(entities) == 0 {
		return
	}
	config, err := substitute.Compile(r.config)
	if err != nil {
		s.proxyFailed(r, entities[0], len(entities), err)
		return
	}
	at := r.plan(len(entities), s.atOnce)
	shift := time.Since(began).Truncate(time.Second) // the time for finding the entities
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for i, e := range entities {
		due := r.begin.Add(at(i)).Truncate(time.Second).Add(shift)
		// elapsed time, so that setting the wall clock does not affect this run
		wait := due.Sub(began) - time.Since(began)
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
			RoundRobin:    r.roundRobin,
			Asked:         r.asked,
			Tick:          r.tick,
			Due:           due,
			Every:         r.period,
			Request:       r.parts.request(c, max(r.issued, due.Unix())),
		})
	}
}

func (s *Scheduler) proxyFailed(r *run, e *resource.EntityConfig, n int, err error) {
	s.metrics.proxyErrors.WithLabelValues("tokens").Add(float64(n))
	s.rare.Warn("entities skipped: tokens of the check cannot be replaced",
		r.config.Metadata.Namespace+"/"+r.config.Metadata.Name, "namespace", r.config.Metadata.Namespace,
		"check", r.config.Metadata.Name, "entity", e.Metadata.Name, "entities", n, "err", err)
}

// plan returns when each of n requests is due, from the run's begin. With splay they are spread evenly over the covered
// part of the period, and end before the next tick. Without it they are sent at once, at a rate with which an agent
// that gets all of them keeps up.
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
