package handler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	runs         *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	startSeconds *prometheus.HistogramVec
	retries      *prometheus.CounterVec
	dropped      prometheus.Counter
	storeErrors  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, d *Dispatcher) metrics {
	byHandler := []string{"handler"}
	m := metrics{
		runs:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_handler_runs_total", Help: "Deliveries that are done with, by handler and result."}, []string{"handler", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lapwing_handler_duration_seconds", Help: "How long a delivery ran, retries included.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, byHandler),
		startSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lapwing_handler_start_seconds", Help: "From the receipt of an event to the start of its handler's first try, by handler.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18), // to 131 s
		}, byHandler),
		retries:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_handler_retries_total", Help: "Tries of a delivery after a temporary failure."}, byHandler),
		dropped:     prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_handler_dropped_total", Help: "Deliveries dropped because their handler was deleted."}),
		storeErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_handler_store_errors_total", Help: "Failures to store, read or remove deliveries."}),
	}
	if r != nil {
		r.MustRegister(m.runs, m.seconds, m.startSeconds, m.retries, m.dropped, m.storeErrors, queueCollector{d})
	}
	return m
}

// know begins a handler's counts at zero.
func (m *metrics) know(handler string) {
	for _, result := range []string{resultOK, resultFailed, resultTimeout, resultError} {
		m.runs.WithLabelValues(handler, result)
	}
	m.retries.WithLabelValues(handler)
	m.seconds.WithLabelValues(handler)
	m.startSeconds.WithLabelValues(handler)
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"handler"}, nil)
}

var (
	dispatchedDesc = describe("lapwing_handler_dispatched_total", "Deliveries handed over to a handler's queue, by handler.")
	spillsDesc     = describe("lapwing_handler_spilled_total", "Deliveries that went to disk because their handler's queue was full, by handler.")
	depthDesc      = describe("lapwing_handler_queue_depth", "Deliveries in memory, waiting or running, by handler.")
	bytesDesc      = describe("lapwing_handler_queue_bytes", "Their data, by handler.")
	spilledDesc    = describe("lapwing_handler_queue_spilled", "Deliveries on disk, waiting for room in the queue, by handler.")
	ageDesc        = describe("lapwing_handler_queue_age_seconds", "Time since the event of the oldest delivery in memory was received, by handler.")
	runningDesc    = describe("lapwing_handler_running", "Deliveries that are being run, by handler.")
	runAgeDesc     = describe("lapwing_handler_run_age_seconds", "How long the one of them that began first has been running, by handler.")

	queueLimitDesc = prometheus.NewDesc("lapwing_handler_queue_limit", "Deliveries of one handler that memory takes.", nil, nil)
	workersDesc    = prometheus.NewDesc("lapwing_handler_workers", "Deliveries of one handler that may run at a time.", nil, nil)
)

// queueCollector reads the queues when the metrics are asked for. Handlers of the same name in different namespaces are
// summed up, or the older one counts.
type queueCollector struct{ d *Dispatcher }

func (c queueCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		dispatchedDesc, spillsDesc, depthDesc, bytesDesc, spilledDesc, ageDesc, runningDesc, runAgeDesc, queueLimitDesc, workersDesc,
	} {
		ch <- d
	}
}

// queueFigures are those of all queues of one name.
type queueFigures struct {
	added, spills                  uint64
	depth, bytes, spilled, running int
	received                       int64     // Unix milliseconds; of the oldest
	begin                          time.Time // of the longest run
}

func (c queueCollector) Collect(ch chan<- prometheus.Metric) {
	figures := map[string]queueFigures{}
	c.d.mu.RLock()
	for name, q := range c.d.queues {
		f := figures[name.handler]
		q.addTo(&f)
		figures[name.handler] = f
	}
	c.d.mu.RUnlock()
	now := time.Now()
	for handler, f := range figures {
		metric := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, t, v, handler)
		}
		age, runAge := 0.0, 0.0
		if f.received > 0 {
			age = max(0, float64(now.UnixMilli()-f.received)/1000)
		}
		if f.running > 0 {
			runAge = now.Sub(f.begin).Seconds()
		}
		metric(dispatchedDesc, prometheus.CounterValue, float64(f.added))
		metric(spillsDesc, prometheus.CounterValue, float64(f.spills))
		metric(depthDesc, prometheus.GaugeValue, float64(f.depth))
		metric(bytesDesc, prometheus.GaugeValue, float64(f.bytes))
		metric(spilledDesc, prometheus.GaugeValue, float64(f.spilled))
		metric(ageDesc, prometheus.GaugeValue, age)
		metric(runningDesc, prometheus.GaugeValue, float64(f.running))
		metric(runAgeDesc, prometheus.GaugeValue, runAge)
	}
	ch <- prometheus.MustNewConstMetric(queueLimitDesc, prometheus.GaugeValue, float64(c.d.opts.QueueSize))
	ch <- prometheus.MustNewConstMetric(workersDesc, prometheus.GaugeValue, float64(c.d.opts.Workers))
}

// addTo adds a queue's figures. The oldest delivery of each pair is the first of its chain.
func (q *queue) addTo(f *queueFigures) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.added += q.added
	f.spills += q.spills
	f.depth += q.count
	f.bytes += q.bytes
	f.spilled += q.spilled
	for _, c := range q.chains {
		it := c.head
		if it.Received > 0 && (f.received == 0 || it.Received < f.received) {
			f.received = it.Received
		}
		if it.begin.IsZero() {
			continue
		}
		if f.running == 0 || it.begin.Before(f.begin) {
			f.begin = it.begin
		}
		f.running++
	}
}
