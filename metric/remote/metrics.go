package remote

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	sent, spilled, retries, damaged prometheus.Counter
	dropped                         *prometheus.CounterVec
	queue                           prometheus.Gauge
	duration                        prometheus.Histogram
}

// newMetrics registers the metrics of a receiver. age is called at each scrape.
func newMetrics(r prometheus.Registerer, name string, age func() float64) metrics {
	remote := prometheus.Labels{"remote": name}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{ConstLabels: remote,
		Name: "lapwing_metric_remote_queue_age_seconds",
		Help: "How long the oldest sample that waits for remote write has waited, in memory or on disk.",
	}, age)
	m := metrics{
		sent: prometheus.NewCounter(prometheus.CounterOpts{ConstLabels: remote,
			Name: "lapwing_metric_remote_sent_samples_total", Help: "Samples that a remote write receiver took.",
		}),
		spilled: prometheus.NewCounter(prometheus.CounterOpts{ConstLabels: remote,
			Name: "lapwing_metric_remote_spilled_samples_total",
			Help: "Samples that went to the overflow on disk, because the memory was full or the overflow not yet empty.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{ConstLabels: remote,
			Name: "lapwing_metric_remote_retries_total", Help: "Remote write requests that failed and are tried again.",
		}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{ConstLabels: remote,
			Name: "lapwing_metric_remote_damaged_records_total", Help: "Records of the overflow that could not be read.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{ConstLabels: remote,
			Name: "lapwing_metric_remote_dropped_samples_total",
			Help: "Samples that were lost, by reason: refused by the receiver, no room, overflow failed, not sent before " +
				"the stop.",
		}, []string{"reason"}),
		queue: prometheus.NewGauge(prometheus.GaugeOpts{ConstLabels: remote,
			Name: "lapwing_metric_remote_queue_bytes", Help: "Compressed bytes that wait in memory to be sent.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{ConstLabels: remote,
			Name: "lapwing_metric_remote_request_duration_seconds", Help: "Time of remote write requests, failed ones too.",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 2, 10, 30},
		}),
	}
	for _, reason := range []string{"refused", "full", "overflow", "stopped"} {
		m.dropped.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m.sent, m.spilled, m.retries, m.damaged, m.dropped, m.queue, m.duration, oldest)
	}
	return m
}
