package queue

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has counters that only the member that gives a check's turns raises: summed over the members they count each
// turn once.
type metrics struct {
	given, again, answered, declined, expired, duplicates, late prometheus.Counter
	latency                                                     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, q *Queue) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := metrics{
		given:      counter("lapwing_queue_given_total", "Turns of round-robin checks that were given to an agent."),
		again:      counter("lapwing_queue_again_total", "Turns that were given to a further agent, because the one before did not answer."),
		answered:   counter("lapwing_queue_answered_total", "Turns that have had a result."),
		declined:   counter("lapwing_queue_declined_total", "Requests that an agent would not run, or that did not reach it."),
		expired:    counter("lapwing_queue_expired_total", "Turns that had no result by their deadline."),
		duplicates: counter("lapwing_queue_duplicates_total", "Results of turns that had one from another agent."),
		late:       counter("lapwing_queue_late_total", "Results that came after the deadline of their turn."),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lapwing_queue_answer_seconds",
			Help:    "From a turn's tick until its result is folded.",
			Buckets: []float64{.05, .1, .25, .5, 1, 1.5, 2.5, 5, 10, 30, 60, 300},
		}),
	}
	if r != nil {
		r.MustRegister(m.given, m.again, m.answered, m.declined, m.expired, m.duplicates, m.late, m.latency, owedMetrics{q})
	}
	return m
}

// count raises a counter, if this member gives the check's turns.
func (q *Queue) count(c *check, counter prometheus.Counter) {
	if c.acting {
		counter.Inc()
	}
}

var (
	groupsDesc = prometheus.NewDesc("lapwing_queue_groups",
		"Groups of round-robin checks, each a check and a subscription, whose turns this member gives.", nil, nil)
	withoutAgentDesc = prometheus.NewDesc("lapwing_queue_group_without_agent",
		"1 for each group whose turns this member gives, and that has no connected agent. By namespace, check and subscription.",
		[]string{"namespace", "check", "subscription"}, nil)
	openDesc = prometheus.NewDesc("lapwing_queue_open",
		"Turns without a result that this member gives.", nil, nil)
	oldestDesc = prometheus.NewDesc("lapwing_queue_oldest_seconds",
		"Age of the oldest turn without a result that this member gives.", nil, nil)
)

// owedMetrics reads what is owed when metrics are collected.
type owedMetrics struct{ q *Queue }

func (m owedMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- groupsDesc
	ch <- withoutAgentDesc
	ch <- openDesc
	ch <- oldestDesc
}

func (m owedMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	var groups, open int
	var oldest time.Duration
	now := time.Now()
	m.q.mu.Lock()
	for _, c := range m.q.checks {
		if !c.acting {
			continue
		}
		for _, g := range c.groups {
			groups++
			open += len(g.open)
			oldest = max(oldest, g.oldest(now))
			if m.q.results.defined(g.name) && !m.q.presence.some(g.name) {
				gauge(withoutAgentDesc, 1, c.name.Namespace, c.name.Name, g.name.Subscription)
			}
		}
	}
	m.q.mu.Unlock()
	gauge(groupsDesc, float64(groups))
	gauge(openDesc, float64(open))
	gauge(oldestDesc, oldest.Seconds())
}

// oldest is the age of the oldest turn without a result. The caller holds the Queue's mu.
func (g *group) oldest(now time.Time) (age time.Duration) {
	for _, o := range g.open {
		age = max(age, now.Sub(o.due))
	}
	return age
}
