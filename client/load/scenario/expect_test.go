package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

func TestJudge(t *testing.T) {
	s := mustParse(t, full)
	good := func() *report.Report {
		micros, rss, log, disk := 17.34, 412e6, 1043.0, 1322.0
		return &report.Report{
			Summary: report.Summary{
				Connected: 1010, ConnectSeconds: 9.24, EventsSent: 1000, EventsPerSecond: 506, Errors: 3, Pairs: 5, PairsVerified: 5,
				BackendCPUMicros: &micros, BackendRSSBytes: &rss, LogBytesPerEvent: &log, DiskBytes: &disk,
			},
			Turns: &report.Turns{PerSecond: 1.2},
			Latencies: map[string]report.Quantiles{
				report.LatencyHandler: {Count: 10, P50: 0.009, P99: 0.05, Max: 0.7},
				report.LatencyAck:     {Count: 10, P99: 0.1},
			},
		}
	}
	f := func(change func(*report.Report), want ...string) {
		t.Helper()
		r := good()
		if change != nil {
			change(r)
		}
		if n := len(s.Judge(r)); n != 18 {
			t.Errorf("%d expectations", n)
		}
		if got := fmt.Sprint(s.Check(r)); got != "["+strings.Join(want, " ")+"]" {
			t.Errorf("errors %s, want %s", got, want)
		}
	}
	f(nil)
	f(func(r *report.Report) { r.Summary.Lost, r.Summary.Errors = 2, 4 }, "loss: wanted at most 0, found 2", "errors: wanted at most 3, found 4")
	f(func(r *report.Report) { r.Summary.PairsVerified = 0 }, "loss: wanted at most 0, found not measured",
		"duplicates: wanted at most 0, found not measured", "order_violations: wanted at most 0, found not measured")
	f(func(r *report.Report) { r.Summary.EventsPerSecond = 499.4 }, "events_per_second_min: wanted at least 500, found 499.4")
	f(func(r *report.Report) { r.Turns.PerSecond, r.Turns.AnsweredTwice = 0.9, 1 }, "turn_duplicates: wanted at most 0, found 1",
		"turns_per_second_min: wanted at least 1, found 0.9")
	f(func(r *report.Report) { r.Turns = nil }, "turn_duplicates: wanted at most 0, found not measured",
		"turns_per_second_min: wanted at least 1, found 0")
	f(func(r *report.Report) { r.Summary.Connected = 1009 }, "connected_min: wanted at least 1010, found 1009")
	f(func(r *report.Report) { r.Summary.ConnectSeconds = 15.5 }, "connect_seconds_max: wanted at most 15 s, found 15.5 s")
	f(func(r *report.Report) { r.Summary.BackendCPUMicros = nil }, "cpu_micros_max: wanted at most 20.5 µs, found not measured")
	f(func(r *report.Report) { *r.Summary.BackendRSSBytes = 2e9 }, "rss_bytes_max: wanted at most 1000000000 bytes, found 2000000000 bytes")
	f(func(r *report.Report) {
		r.Latencies[report.LatencyHandler] = report.Quantiles{Count: 1, P50: 0.0101, P99: 0.04, Max: 1.5}
		delete(r.Latencies, report.LatencyAck)
	}, "latencies.ack.p99_max: wanted at most 2s, found not measured", "latencies.handler.p50_max: wanted at most 10ms, found 10.1ms",
		"latencies.handler.max: wanted at most 1s, found 1.5s")
	if errs := mustParse(t, "name: x\nagents: [{name: a, count: 1}]").Check(&report.Report{}); errs != nil {
		t.Errorf("errors %v of a scenario that expects nothing", errs)
	}
}
