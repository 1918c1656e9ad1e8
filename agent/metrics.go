package agent

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what transports do. Transports of one process share one.
type Metrics struct {
	sent      prometheus.Counter
	acked     prometheus.Counter
	dropped   prometheus.Counter
	buffered  prometheus.Gauge
	connected prometheus.Gauge
	connects  *prometheus.CounterVec
}

// NewMetrics registers the transports' metrics; registerer may be nil.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{
		sent:      prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_events_sent_total", Help: "Events and keepalives written to a backend, each time they were."}),
		acked:     prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_events_acked_total", Help: "Events and keepalives that a lapwing backend acknowledged, or that were written to another one."}),
		dropped:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_events_dropped_total", Help: "Events and keepalives given up before they were acknowledged: the buffer was full, or no backend took them."}),
		buffered:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_buffered_events", Help: "Events and keepalives held until they are acknowledged."}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_connected", Help: "Connections to a backend that are up: 0 or 1 for one agent."}),
		connects:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_connects_total", Help: "Attempts to connect to a backend, by result."}, []string{"result"}),
	}
	m.connects.WithLabelValues("ok")
	m.connects.WithLabelValues("error")
	if registerer != nil {
		registerer.MustRegister(m.sent, m.acked, m.dropped, m.buffered, m.connected, m.connects)
	}
	return m
}

// checkMetrics counts what an agent does with check requests.
type checkMetrics struct {
	requests *prometheus.CounterVec
	running  prometheus.Gauge
	waiting  prometheus.Gauge
}

func newCheckMetrics(registerer prometheus.Registerer) checkMetrics {
	m := checkMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_check_requests_total", Help: "Check requests received, by what was done with them."}, []string{"result"}),
		running:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_checks_running", Help: "Checks being executed."}),
		waiting:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_checks_waiting", Help: "Accepted checks that wait because as many as allowed are running."}),
	}
	for _, v := range []verdict{accepted, duplicate, outdated, inProgress} {
		m.requests.WithLabelValues(string(v))
	}
	if registerer != nil {
		registerer.MustRegister(m.requests, m.running, m.waiting)
	}
	return m
}
