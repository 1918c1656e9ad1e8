package resource

import (
	"math"
	"strings"
	"testing"
)

func TestAggregateValidate(t *testing.T) {
	valid := func() *Aggregate {
		return &Aggregate{
			Metadata: ObjectMeta{Namespace: "default", Name: "disks"}, FieldSelector: "event.check.name == disk",
			Warning: &AggregateThreshold{Percent: 30}, Interval: 60,
		}
	}
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	few := uint32(256)
	for _, tc := range []struct {
		change func(*Aggregate)
		want   string
	}{
		{func(a *Aggregate) { a.Metadata.Name = "a b" }, "aggregate name"},
		{func(a *Aggregate) { a.Metadata.Namespace = "" }, "namespace must be set"},
		{func(a *Aggregate) { a.FieldSelector = "" }, "label_selector or field_selector"},
		{func(a *Aggregate) { a.Warning = nil }, "warning or critical"},
		{func(a *Aggregate) { a.Warning = &AggregateThreshold{} }, "warning needs"},
		{func(a *Aggregate) { a.Critical = &AggregateThreshold{Percent: 101} }, "critical percent"},
		{func(a *Aggregate) { a.Critical = &AggregateThreshold{Percent: math.NaN()} }, "critical percent"},
		{func(a *Aggregate) { a.Interval = 0 }, "interval must be greater"},
		{func(a *Aggregate) { a.Interval = 86401 }, "interval must not"},
		{func(a *Aggregate) { a.Result.Entity = "a/b" }, "result entity"},
		{func(a *Aggregate) { a.Result.Check = "a b" }, "result check"},
		{func(a *Aggregate) { a.Result.Check = "keepalive" }, "keepalive"},
		{func(a *Aggregate) { a.FewStatus = &few }, "few_status"},
		{func(a *Aggregate) { a.Result.Pipelines = []ResourceReference{{Name: "x"}} }, "pipeline reference"},
	} {
		a := valid()
		tc.change(a)
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

func TestThresholdReached(t *testing.T) {
	for _, tc := range []struct {
		percent          float64
		count            uint32
		failing, members int
		want             bool
	}{
		{30, 0, 3, 10, true}, {30, 0, 29, 100, false}, {30, 0, 0, 0, false}, {0, 2, 2, 100, true}, {0, 2, 1, 1, false},
		{50, 2, 1, 2, true}, {50, 2, 2, 100, true}, {100, 0, 9, 10, false}, {0.1, 0, 1, 1000, true}, {33.3, 0, 1, 3, true},
	} {
		th := &AggregateThreshold{Percent: tc.percent, Count: tc.count}
		if got := th.Reached(tc.failing, tc.members); got != tc.want {
			t.Errorf("%v%% or %d of %d of %d: %v", tc.percent, tc.count, tc.failing, tc.members, got)
		}
	}
	if (*AggregateThreshold)(nil).Reached(1, 1) {
		t.Error("a threshold that is not set is reached")
	}
}
