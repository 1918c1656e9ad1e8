package send

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	attempts *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	waits    prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Sender) metrics {
	m := metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_send_attempts_total",
			Help: "Attempts to hand an event over, by type of handler and result.",
		}, []string{"type", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lapwing_send_duration_seconds", Help: "How long an attempt took, by type of handler.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"type"}),
		waits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_send_process_waits_total",
			Help: "Commands that waited because as many as allowed were running.",
		}),
	}
	for kind := range kinds {
		m.know(kind)
	}
	m.know("pipe")
	if r != nil {
		gauge := func(name, help string, f func() int) prometheus.Collector {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f()) })
		}
		r.MustRegister(m.attempts, m.seconds, m.waits,
			gauge("lapwing_send_processes", "Commands of handlers that are running.", func() int { return len(s.processes) }),
			gauge("lapwing_send_streams", "Connections of handlers that are kept open from one event to the next.",
				func() int { return s.streams.open() }),
			gauge("lapwing_send_process_limit", "Commands of handlers that may run at a time.", func() int { return cap(s.processes) }),
		)
	}
	return m
}

// know sets the counts of a type to zero.
func (m *metrics) know(kind string) {
	for _, result := range []string{KindOK, KindFailed, KindTimeout, KindError} {
		m.attempts.WithLabelValues(kind, result)
	}
	m.seconds.WithLabelValues(kind)
}

func (m *metrics) note(kind, result string, took time.Duration) {
	if _, ok := kinds[kind]; !ok && kind != "pipe" {
		kind = "other"
	}
	m.attempts.WithLabelValues(kind, result).Inc()
	m.seconds.WithLabelValues(kind).Observe(took.Seconds())
}
