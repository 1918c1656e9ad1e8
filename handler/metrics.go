package handler

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	runs         *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	retries      *prometheus.CounterVec
	dropped      prometheus.Counter
	spilledTotal prometheus.Counter
	storeErrors  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, d *Dispatcher) metrics {
	m := metrics{
		runs:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_handler_runs_total", Help: "Deliveries that are done with, by handler and result."}, []string{"handler", "result"}),
		seconds:      prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lapwing_handler_duration_seconds", Help: "How long a delivery ran, retries included.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"handler"}),
		retries:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_handler_retries_total", Help: "Tries of a delivery after a temporary failure."}, []string{"handler"}),
		dropped:      prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_handler_dropped_total", Help: "Deliveries dropped because their handler was deleted."}),
		spilledTotal: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_handler_spilled_total", Help: "Deliveries that went to disk because their handler's queue was full."}),
		storeErrors:  prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_handler_store_errors_total", Help: "Failures to store, read or remove deliveries."}),
	}
	if r != nil {
		r.MustRegister(m.runs, m.seconds, m.retries, m.dropped, m.spilledTotal, m.storeErrors, queueCollector{d})
	}
	return m
}

var (
	depthDesc   = prometheus.NewDesc("lapwing_handler_queue_depth", "Deliveries in memory, waiting or running, by handler.", []string{"handler"}, nil)
	spilledDesc = prometheus.NewDesc("lapwing_handler_queue_spilled", "Deliveries on disk, waiting for room in the queue, by handler.", []string{"handler"}, nil)
)

// queueCollector reads the queues when the metrics are asked for. Handlers of the same name in different namespaces are
// summed up.
type queueCollector struct{ d *Dispatcher }

func (c queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- depthDesc
	ch <- spilledDesc
}

func (c queueCollector) Collect(ch chan<- prometheus.Metric) {
	depth, spilled := map[string]int{}, map[string]int{}
	c.d.mu.RLock()
	for name, q := range c.d.queues {
		q.mu.Lock()
		depth[name.handler] += q.count
		spilled[name.handler] += q.spilled
		q.mu.Unlock()
	}
	c.d.mu.RUnlock()
	for handler, n := range depth {
		ch <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(n), handler)
		ch <- prometheus.MustNewConstMetric(spilledDesc, prometheus.GaugeValue, float64(spilled[handler]), handler)
	}
}
