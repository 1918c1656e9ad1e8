package lateness

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	latenessDesc = prometheus.NewDesc("lapwing_check_lateness_seconds",
		"How long ago the first run of a published check was due that is missing; 0 if none is. By namespace and check.",
		[]string{"namespace", "check"}, nil)
	lateDesc         = prometheus.NewDesc("lapwing_checks_late", "Published checks of which at least one run is missing.", nil, nil)
	withoutAgentDesc = prometheus.NewDesc("lapwing_check_without_agent",
		"1 for each published check none of whose subscriptions a connected agent has, on any member. By namespace and check.",
		[]string{"namespace", "check"}, nil)
)

// collector reads the lateness of all checks when metrics are collected.
type collector struct{ w *Watcher }

// Describe sends the descriptions of the metrics.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- latenessDesc
	ch <- lateDesc
	ch <- withoutAgentDesc
}

// Collect sends the figures. A check whose lateness is not known has no series.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	w, late := c.w, 0
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.hearing(time.Now())
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for k, one := range w.checks {
		if one.plan == nil {
			continue
		}
		w.count(one, h.now)
		switch one.judge(h) {
		case isLate:
			late++
			gauge(latenessDesc, time.Duration(h.now-one.overdue.first).Seconds(), k.Namespace, k.Name)
		case onTime:
			gauge(latenessDesc, 0, k.Namespace, k.Name)
		}
		if w.withoutAgent(k.Namespace, one.config) {
			gauge(withoutAgentDesc, 1, k.Namespace, k.Name)
		}
	}
	gauge(lateDesc, float64(late))
}
