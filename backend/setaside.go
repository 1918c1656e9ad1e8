package backend

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/filter"
)

// maxSetAsideSeries bounds what the metric names.
const maxSetAsideSeries = 100

var setAsideDesc = prometheus.NewDesc("lapwing_expression_set_aside_definition",
	"Expressions that are not run any more, by the definition in which they were found; 100 definitions at most.",
	[]string{"namespace", "kind", "name"}, nil)

// setAsideMetric names the definitions with expressions that are set aside, for the doctor.
type setAsideMetric struct{ list func() []filter.SetAside }

// Describe is part of prometheus.Collector.
func (m setAsideMetric) Describe(out chan<- *prometheus.Desc) { out <- setAsideDesc }

// Collect is part of prometheus.Collector.
func (m setAsideMetric) Collect(out chan<- prometheus.Metric) {
	counts := map[filter.Definer]int{}
	for _, s := range m.list() {
		counts[s.Definer]++
	}
	definers := make([]filter.Definer, 0, len(counts))
	for d := range counts {
		definers = append(definers, d)
	}
	slices.SortFunc(definers, func(a, b filter.Definer) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, d := range definers[:min(maxSetAsideSeries, len(definers))] {
		out <- prometheus.MustNewConstMetric(setAsideDesc, prometheus.GaugeValue, float64(counts[d]), d.Namespace, d.Kind, d.Name)
	}
}
