// Package metric is the metrics half: carbon and other points in, rules and aggregation, storage in tiers, and Graphite
// and Prometheus queries out.
package metric
