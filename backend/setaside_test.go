package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/filter"
)

func TestSetAsideIsNamed(t *testing.T) {
	list := []filter.SetAside{
		{Definer: filter.Definer{Kind: "filter", Namespace: "b", Name: "bomb"}, Source: "1"},
		{Definer: filter.Definer{Kind: "filter", Namespace: "b", Name: "bomb"}, Source: "2"},
		{Definer: filter.Definer{Kind: "mutator", Namespace: "a", Name: "m"}, Source: "1"},
	}
	m := setAsideMetric{func() []filter.SetAside { return list }}
	want := `
# HELP lapwing_expression_set_aside_definition Expressions that are not run any more, by the definition in which they were found; 100 definitions at most.
# TYPE lapwing_expression_set_aside_definition gauge
lapwing_expression_set_aside_definition{kind="filter",name="bomb",namespace="b"} 2
lapwing_expression_set_aside_definition{kind="mutator",name="m",namespace="a"} 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	for i := range 1000 {
		list = append(list, filter.SetAside{Definer: filter.Definer{Kind: "filter", Namespace: "c", Name: fmt.Sprint(i)}})
	}
	if n := testutil.CollectAndCount(m); n != maxSetAsideSeries {
		t.Errorf("%d series", n)
	}
	prometheus.NewPedanticRegistry().MustRegister(m)
}
