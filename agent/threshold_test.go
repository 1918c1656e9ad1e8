package agent

import (
	"maps"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestEvaluateThresholds(t *testing.T) {
	t.Parallel()
	point := func(name string, value float64, tags ...resource.MetricTag) resource.MetricPoint {
		return resource.MetricPoint{Name: name, Value: value, Tags: tags}
	}
	web := resource.MetricTag{Name: "host", Value: "web"}
	const prefix = "sensu.io/output_metric_thresholds/"
	for _, tt := range []struct {
		name        string
		points      []resource.MetricPoint
		thresholds  []resource.MetricThreshold
		status      uint32
		annotations map[string]string
	}{
		{
			name:       "within",
			points:     []resource.MetricPoint{point("load", 1), point("load", 0)},
			thresholds: []resource.MetricThreshold{{Name: "load", Thresholds: []resource.MetricThresholdRule{{Min: "0", Max: "1", Status: 1}}}},
		},
		{
			name:       "over the highest",
			points:     []resource.MetricPoint{point("load", 1.5)},
			thresholds: []resource.MetricThreshold{{Name: "load", Thresholds: []resource.MetricThresholdRule{{Max: "1.0", Status: 1}, {Max: "1.4", Status: 2}, {Max: "2", Status: 3}}}},
			status:     2,
			annotations: map[string]string{
				prefix + "load/max/warning":       "The value of load exceeded the configured threshold (max: 1.0, actual: 1.5).",
				prefix + "load/max/critical":      "The value of load exceeded the configured threshold (max: 1.4, actual: 1.5).",
				"sensu.io/notifications/critical": "The value of load exceeded the configured threshold (max: 1.4, actual: 1.5).",
			},
		},
		{
			name:   "tags; the first to reach the status is notified",
			points: []resource.MetricPoint{point("load", -1, web, resource.MetricTag{Name: "cpu", Value: "0"}), point("load", -1), point("load", -2, web)},
			thresholds: []resource.MetricThreshold{{
				Name: "load", Tags: []resource.MetricThresholdTag{{Name: "host", Value: "web"}},
				Thresholds: []resource.MetricThresholdRule{{Min: "0", Max: "-5", Status: 5}},
			}},
			status: 5,
			annotations: map[string]string{
				prefix + "load.web/min/unknown":  "The value of load (host=web) exceeded the configured threshold (min: 0, actual: -2).",
				"sensu.io/notifications/unknown": "The value of load (host=web) exceeded the configured threshold (min: 0, actual: -1).",
			},
		},
		{
			name:   "missing",
			points: []resource.MetricPoint{point("load", 1)},
			thresholds: []resource.MetricThreshold{
				{Name: "mem", Tags: []resource.MetricThresholdTag{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}, NullStatus: 1,
					Thresholds: []resource.MetricThresholdRule{{Min: "1", Max: "2", Status: 2}, {Max: "3", Status: 1}}},
				{Name: "absent and nobody minds"},
			},
			status: 1,
			annotations: map[string]string{
				prefix + "mem.1.2/null-status/warning": `WARNING : no metric matching "mem" (a="1", b="2") was found; expected min: 1 - max: 2 (status: critical); expected max: 3 (status: warning)`,
				"sensu.io/notifications/warning":       `WARNING : no metric matching "mem" (a="1", b="2") was found; expected min: 1 - max: 2 (status: critical); expected max: 3 (status: warning)`,
			},
		},
		{
			name:       "bounds that are no numbers",
			points:     []resource.MetricPoint{point("load", 9)},
			thresholds: []resource.MetricThreshold{{Name: "load", Thresholds: []resource.MetricThresholdRule{{Min: "x", Max: "1", Status: 1}, {Min: "1", Max: "x", Status: 1}}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, annotations := evaluateThresholds(tt.points, tt.thresholds)
			if status != tt.status || !maps.Equal(annotations, tt.annotations) {
				t.Errorf("got %d, %q\nwant %d, %q", status, annotations, tt.status, tt.annotations)
			}
		})
	}
}

func TestHookApplies(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][5]bool{ // for status 0, 1, 2, 3, 255
		"ok":       {true, false, false, false, false},
		"warning":  {false, true, false, false, false},
		"critical": {false, false, true, false, false},
		"unknown":  {false, false, false, true, true},
		"non-zero": {false, true, true, true, true},
		"0":        {true, false, false, false, false},
		"255":      {false, false, false, false, true},
		"":         {},
		"00":       {},
	} {
		for i, status := range []uint32{0, 1, 2, 3, 255} {
			if got := hookApplies(kind, status); got != want[i] {
				t.Errorf("%q for status %d: %v", kind, status, got)
			}
		}
	}
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	l := requestLog{checks: map[string]requested{}}
	for i, step := range []struct {
		check  string
		issued int64
		want   verdict
		done   bool
	}{
		{check: "a", issued: 10, want: accepted},
		{check: "a", issued: 10, want: duplicate},
		{check: "a", issued: 9, want: outdated},
		{check: "a", issued: 11, want: inProgress},
		{check: "a/proxy", issued: 10, want: accepted},
		{check: "a", done: true},
		{check: "a", issued: 10, want: duplicate},
		{check: "a", issued: 11, want: accepted},
		{check: "b", issued: 0, want: accepted},
		{check: "b", issued: 0, want: duplicate},
	} {
		if step.done {
			l.done(step.check)
		} else if got := l.take(step.check, step.issued, turn{}); got != step.want {
			t.Errorf("step %d: %s", i, got)
		}
	}
}
