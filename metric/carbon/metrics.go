package carbon

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one protocol.
type metrics struct {
	points, bytes, dropped, opened, full prometheus.Counter
	connections                          prometheus.Gauge
	rejected                             [Reasons]prometheus.Counter
	closed                               [closedReasons]prometheus.Counter
}

// newMetrics registers the metrics, or uses those that another Listener has registered.
func newMetrics(r prometheus.Registerer, protocol Protocol) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			append([]string{"protocol"}, labels...))
	}
	points := counter("lapwing_metric_carbon_points_total", "Points taken, by protocol.")
	rejected := counter("lapwing_metric_carbon_rejected_points_total",
		"Points, lines or frames that were not taken, by protocol and reason.", "reason")
	dropped := counter("lapwing_metric_carbon_dropped_points_total",
		"Points that were taken by UDP and dropped, because the writer had no room.")
	bytes := counter("lapwing_metric_carbon_received_bytes_total", "Bytes received, by protocol.")
	opened := counter("lapwing_metric_carbon_connections_total", "Connections accepted, by protocol.")
	closed := counter("lapwing_metric_carbon_closed_connections_total", "Connections closed, by protocol and reason.",
		"reason")
	full := counter("lapwing_metric_carbon_connections_full_total",
		"How often there were as many connections as allowed, by protocol. Further ones have to wait then.")
	connections := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lapwing_metric_carbon_connections", Help: "Open connections, by protocol.",
	}, []string{"protocol"})

	for _, vec := range []**prometheus.CounterVec{&points, &rejected, &dropped, &bytes, &opened, &closed, &full} {
		if err := register(r, vec); err != nil {
			return nil, err
		}
	}
	if err := register(r, &connections); err != nil {
		return nil, err
	}
	p := string(protocol)
	m := &metrics{
		points: points.WithLabelValues(p), bytes: bytes.WithLabelValues(p), dropped: dropped.WithLabelValues(p),
		opened: opened.WithLabelValues(p), full: full.WithLabelValues(p), connections: connections.WithLabelValues(p),
	}
	for reason := range m.rejected {
		m.rejected[reason] = rejected.WithLabelValues(p, Reason(reason).String())
	}
	for reason := range m.closed {
		m.closed[reason] = closed.WithLabelValues(p, closedNames[reason])
	}
	return m, nil
}

// register registers a collector, or replaces it by the one of the same name that is there already.
func register[C prometheus.Collector](r prometheus.Registerer, c *C) error {
	if r == nil {
		return nil
	}
	err := r.Register(*c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		existing, ok := there.ExistingCollector.(C)
		if !ok {
			return fmt.Errorf("register metrics: %w", err)
		}
		*c = existing
		return nil
	}
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
