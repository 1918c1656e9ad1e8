package state

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	folded        prometheus.Counter
	duplicates    prometheus.Counter
	stale         prometheus.Counter
	undecodable   prometheus.Counter
	foldSeconds   prometheus.Histogram
	written       prometheus.Counter
	writeFailures prometheus.Counter
	writeSeconds  prometheus.Histogram
	lag           *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer, s *State) metrics {
	m := metrics{
		folded:        prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_events_folded_total", Help: "Events read back from the log and folded into the state."}),
		duplicates:    prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_events_duplicate_total", Help: "Events that an agent sent again although the first had arrived."}),
		stale:         prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_deadlines_overtaken_total", Help: "Deadlines that an event overtook before they were folded."}),
		undecodable:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_state_undecodable_total", Help: "Log records and stored values that could not be read."}),
		foldSeconds:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_state_fold_seconds", Help: "Folding and routing one message of the log.", Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10)}),
		written:       prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_state_written_total", Help: "Pairs, entities and removals written back."}),
		writeFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_state_write_failures_total", Help: "Write-back commits that failed and were tried again."}),
		writeSeconds:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_state_write_seconds", Help: "One write-back commit.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10)}),
		lag:           prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lapwing_state_lag_messages", Help: "Messages in the log that are not folded yet, by partition."}, []string{"partition"}),
	}
	if r == nil {
		return m
	}
	gauge := func(name, help string, of func(*partition) int) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			sum := 0
			for _, p := range s.parts {
				p.mu.Lock()
				sum += of(p)
				p.mu.Unlock()
			}
			return float64(sum)
		})
	}
	r.MustRegister(m.folded, m.duplicates, m.stale, m.undecodable, m.foldSeconds, m.written, m.writeFailures, m.writeSeconds, m.lag,
		gauge("lapwing_state_pairs", "(entity, check) pairs known.", func(p *partition) int { return p.count }),
		gauge("lapwing_state_dirty", "Changes waiting to be written back.", func(p *partition) int { return p.dirty.len() }),
		gauge("lapwing_state_dirty_bytes", "Event bodies waiting to be written back.", func(p *partition) int { return p.dirty.bytes }),
	)
	return m
}
