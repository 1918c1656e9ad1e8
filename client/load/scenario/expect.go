package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

// Check returns the scenario's expectations that a run has not met.
func (s *Scenario) Check(r *report.Report) []error {
	var errs []error
	for _, e := range s.Judge(r) {
		if !e.Met {
			errs = append(errs, fmt.Errorf("%s: wanted %s, found %s", e.Name, e.Want, e.Got))
		}
	}
	return errs
}

// Judge compares a report with the scenario's expectations. A figure that was not measured meets none.
func (s *Scenario) Judge(r *report.Report) []report.Expectation {
	var out []report.Expectation
	e, sum := &s.Expect, &r.Summary

	// The stored events are known to be those sent only if they were compared.
	compared := sum.PairsVerified > 0 || sum.EventsSent == 0
	atMost := func(name string, want *uint64, got uint64, known bool) {
		if want == nil {
			return
		}
		x := report.Expectation{Name: name, Want: "at most " + strconv.FormatUint(*want, 10), Got: notMeasured}
		if known {
			x.Got, x.Met = strconv.FormatUint(got, 10), got <= *want
		}
		out = append(out, x)
	}
	atMost("loss", e.Loss, sum.Lost, compared)
	atMost("duplicates", e.Duplicates, sum.Duplicates, compared)
	atMost("order_violations", e.OrderViolations, sum.OrderViolations, compared)
	atMost("errors", e.Errors, sum.Errors, true)
	atMost("disconnects", e.Disconnects, sum.Disconnects, true)
	turns := r.Turns
	if turns == nil {
		turns = &report.Turns{}
	}
	atMost("turn_duplicates", e.TurnDuplicates, turns.AnsweredTwice, r.Turns != nil)

	limit := func(name string, want, got *float64, atLeast bool, unit string) {
		if want == nil {
			return
		}
		x := report.Expectation{Name: name, Want: "at most " + figure(*want) + unit, Got: notMeasured}
		if atLeast {
			x.Want = "at least " + figure(*want) + unit
		}
		if got != nil {
			x.Got, x.Met = figure(*got)+unit, *got <= *want
			if atLeast {
				x.Met = *got >= *want
			}
		}
		out = append(out, x)
	}
	limit("connected_min", e.ConnectedMin, new(float64(sum.Connected)), true, "")
	limit("connect_seconds_max", e.ConnectSecondsMax, &sum.ConnectSeconds, false, " s")
	limit("events_per_second_min", e.EventsPerSecondMin, &sum.EventsPerSecond, true, "")
	limit("turns_per_second_min", e.TurnsPerSecondMin, &turns.PerSecond, true, "")
	limit("cpu_micros_max", e.CPUMicrosMax, sum.BackendCPUMicros, false, " µs")
	limit("rss_bytes_max", e.RSSBytesMax, sum.BackendRSSBytes, false, " bytes")
	limit("log_bytes_max", e.LogBytesMax, sum.LogBytesPerEvent, false, " bytes")
	limit("disk_bytes_max", e.DiskBytesMax, sum.DiskBytes, false, " bytes")

	over := r.Overload
	if over == nil {
		over = &report.Overload{}
	}
	limit("caught_up_seconds_max", e.CaughtUpSecondsMax, over.CaughtUpSeconds, false, " s")
	limit("false_deadlines", e.FalseDeadlines, over.FalseDeadlines, false, "")
	out = judgeLatencies(out, "latencies.", e.Latencies, r.Latencies)
	return judgeLatencies(out, "overload_latencies.", e.OverloadLatencies, over.Latencies)
}

func judgeLatencies(out []report.Expectation, prefix string, wanted map[string]Latency,
	measured map[string]report.Quantiles) []report.Expectation {
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		want := wanted[key]
		got, known := measured[key]
		known = known && got.Count > 0
		for _, l := range []struct {
			name string
			want time.Duration
			got  float64
		}{{"p50_max", want.P50Max, got.P50}, {"p99_max", want.P99Max, got.P99}, {"max", want.Max, got.Max}} {
			if l.want == 0 {
				continue
			}
			x := report.Expectation{Name: prefix + key + "." + l.name, Want: "at most " + l.want.String(), Got: notMeasured}
			if known {
				took := time.Duration(l.got * float64(time.Second))
				x.Got, x.Met = took.Round(10*time.Microsecond).String(), took <= l.want
			}
			out = append(out, x)
		}
	}
	return out
}

const notMeasured = "not measured"

// figure writes small numbers with one decimal place, larger ones whole.
func figure(v float64) string {
	if math.Abs(v) < 1000 {
		v = math.Round(v*10) / 10
	} else {
		v = math.Round(v)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
