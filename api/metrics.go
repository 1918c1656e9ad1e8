package api

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/state"
)

type metrics struct {
	requests  *prometheus.CounterVec
	duration  prometheus.Histogram
	panics    prometheus.Counter
	streams   prometheus.Gauge
	overflows prometheus.Counter
}

func newMetrics(r prometheus.Registerer, a *API) metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_api_requests_total",
			Help: "HTTP requests answered, by status code and method; code aborted is for answers that were cut short."},
			[]string{"code", "method"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_api_request_duration_seconds", Help: "Time from a request to the end of its answer, live streams left out.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		panics:  prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_api_panics_total", Help: "Request handlers that panicked."}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_api_streams", Help: "Live streams that are open."}),
		overflows: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_api_stream_overflows_total",
			Help: "Live streams ended because their client was too slow."}),
	}
	m.requests.WithLabelValues("200", http.MethodGet)
	if r != nil {
		r.MustRegister(m.requests, m.duration, m.panics, m.streams, m.overflows, backlogCollector{a})
	}
	return m
}

var (
	backlogDesc = prometheus.NewDesc("lapwing_api_stream_backlog",
		"Changed events that live streams have not sent yet, summed over the streams.", nil, nil)
	backlogAgeDesc = prometheus.NewDesc("lapwing_api_stream_backlog_age_seconds", "How long the oldest of them has waited.", nil, nil)
)

// backlogCollector reads the live streams' backlogs when the metrics are read.
type backlogCollector struct{ a *API }

// Describe sends the descriptions of the metrics.
func (c backlogCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect sends the sums over all backlogs.
func (c backlogCollector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	oldest, sum := now, 0
	c.a.mu.Lock()
	for b, tail := range c.a.backlogs {
		n, since := b.depth()
		if n > 0 && since.Before(oldest) {
			oldest = since
		}
		sum += n + len(tail.C)
	}
	c.a.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(backlogDesc, prometheus.GaugeValue, float64(sum))
	ch <- prometheus.MustNewConstMetric(backlogAgeDesc, prometheus.GaugeValue, now.Sub(oldest).Seconds())
}

// trackBacklog adds a live stream's backlog to the metrics until stop is called.
func (a *API) trackBacklog(b *backlog, tail *state.Tail) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backlogs[b] = tail
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.backlogs, b)
	}
}

// methodLabel bounds the values of the label: clients can send any method.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// observe counts an answered request.
func (a *API) observe(w *response, r *http.Request, took time.Duration) {
	status := w.status
	if status == 0 {
		status = http.StatusOK // what net/http sends for a handler that writes nothing
	}
	a.metrics.requests.WithLabelValues(strconv.Itoa(status), methodLabel(r.Method)).Inc()
	if w.Header().Get("Content-Type") != streamType {
		a.metrics.duration.Observe(took.Seconds())
	}
	if a.log.Enabled(r.Context(), slog.LevelDebug) {
		a.log.Debug("request", "method", r.Method, "path", rarelog.Short(shownPath(r.URL.Path)), "status", status,
			"seconds", took.Seconds(), "remote", r.RemoteAddr)
	}
}
