package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// Metrics counts the work of transports. Transports of one process share one.
type Metrics struct {
	sent      prometheus.Counter
	acked     prometheus.Counter
	dropped   prometheus.Counter
	refused   prometheus.Counter
	batches   prometheus.Counter
	buffered  prometheus.Gauge
	connected prometheus.Gauge
	paced     *prometheus.GaugeVec
	connects  *prometheus.CounterVec
}

// NewMetrics registers the transports' metrics; registerer may be nil.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_events_sent_total",
			Help: "Events and keepalives written to a backend, each time they were."}),
		acked: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_events_acked_total",
			Help: "Events and keepalives that a lapwing backend acknowledged, or that were written to another one."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_events_dropped_total",
			Help: "Events and keepalives given up before they were acknowledged: the buffer was full, or no backend took them."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_events_refused_total",
			Help: "Events and keepalives that the backend refused for good, with a reason that the log has."}),
		batches:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_batches_sent_total", Help: "Writes of events and keepalives to a backend, however many in each."}),
		buffered:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_buffered_events", Help: "Events and keepalives held until they are acknowledged."}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_connected", Help: "Connections to a backend that are up: 0 or 1 for one agent."}),
		paced:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lapwing_agent_paced", Help: "Connections whose backend has asked for events to come slowly, or to be kept, by pace."}, []string{"pace"}),
		connects:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_connects_total", Help: "Attempts to connect to a backend, by result."}, []string{"result"}),
	}
	for _, p := range []wire.Pace{wire.PaceSlow, wire.PaceSpool} {
		m.paced.WithLabelValues(p.String())
	}
	m.connects.WithLabelValues("ok")
	m.connects.WithLabelValues("error")
	if registerer != nil {
		registerer.MustRegister(m.sent, m.acked, m.dropped, m.refused, m.batches, m.buffered, m.connected, m.paced, m.connects)
	}
	return m
}

// checkMetrics counts an agent's check requests.
type checkMetrics struct {
	requests *prometheus.CounterVec
	running  prometheus.Gauge
	waiting  prometheus.Gauge
	cpu      prometheus.Counter
}

func newCheckMetrics(registerer prometheus.Registerer) checkMetrics {
	m := checkMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_check_requests_total", Help: "Check requests received, by what was done with them."}, []string{"result"}),
		running:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_checks_running", Help: "Checks being executed."}),
		waiting:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_checks_waiting", Help: "Accepted checks that wait because as many as allowed are running."}),
		cpu:      prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_checks_cpu_seconds_total", Help: "CPU time that the commands of checks used."}),
	}
	for _, v := range []verdict{accepted, duplicate, outdated, inProgress, turnRuns, turnDone, stopping} {
		m.requests.WithLabelValues(string(v))
	}
	if registerer != nil {
		registerer.MustRegister(m.requests, m.running, m.waiting, m.cpu)
	}
	return m
}

// scheduleMetrics counts an agent's scheduled checks.
type scheduleMetrics struct {
	checks   prometheus.Gauge
	ticks    *prometheus.CounterVec
	lateness prometheus.Histogram
}

func newScheduleMetrics(registerer prometheus.Registerer) *scheduleMetrics {
	m := &scheduleMetrics{
		checks: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_agent_schedule_checks", Help: "Checks that the agent runs by itself, on the backend's schedule."}),
		ticks:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_schedule_ticks_total", Help: "Ticks of the checks that the agent runs by itself, by what was done with them."}, []string{"result"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lapwing_agent_schedule_lateness_seconds",
			Help:    "How long after its tick a check that the agent runs by itself was started.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60},
		}),
	}
	for _, result := range []string{string(accepted), string(duplicate), string(inProgress), tickSubdued, tickMissed} {
		m.ticks.WithLabelValues(result)
	}
	if registerer != nil {
		registerer.MustRegister(m.checks, m.ticks, m.lateness)
	}
	return m
}
