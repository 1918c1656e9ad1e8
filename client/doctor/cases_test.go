package doctor_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/lapwing-monitoring/lapwing/client/doctor"
)

var rewrite = flag.Bool("rewrite", false, "write what the cases in testdata/cases want anew")

// TestCases runs testdata/cases: each names a recorded pair of scrapes, changes them, and has the expected report.
//
// The file begins with a description. The section "change" begins with the name of the pair, followed by lines like
//
//	both lapwing_disk_free_bytes 100e6                      in both scrapes the value is this
//	after lapwing_handler_queue_depth{handler="slow"} 1008  in the second it is
//	after lapwing_agent_dropped_frames_total +50            in the second it is more by this; a new series begins at 0
//	after lapwing_eventlog_commit_seconds +100 0.3          the histogram has observed 0.3 a hundred times more
//
// The section "report" is the text without the part about use. -rewrite writes it.
func TestCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(ar.Files) != 2 || ar.Files[0].Name != "change" || ar.Files[1].Name != "report" {
				t.Fatal("want the sections change and report")
			}
			before, after, err := change(string(ar.Files[0].Data))
			if err != nil {
				t.Fatal(err)
			}
			report := doctor.Examine(before, after)
			var b bytes.Buffer
			if err := doctor.WriteText(&b, report); err != nil {
				t.Fatal(err)
			}
			text, _, _ := strings.Cut(b.String(), "\nIn use:\n")
			got := fmt.Sprintf("exit status %d\n%s", int(report.Severity), text)
			if *rewrite {
				ar.Files[1].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := string(ar.Files[1].Data); got != want {
				t.Errorf("report:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// change makes the scrapes of a case.
func change(text string) (before, after *doctor.Scrape, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if before, err = load(lines[0] + "-before"); err != nil {
		return nil, nil, err
	}
	if after, err = load(lines[0] + "-after"); err != nil {
		return nil, nil, err
	}
	for _, line := range lines[1:] {
		which, rest, _ := strings.Cut(line, " ")
		var changed []*doctor.Scrape
		switch which {
		case "both":
			changed = []*doctor.Scrape{before, after}
		case "before":
			changed = []*doctor.Scrape{before}
		case "after":
			changed = []*doctor.Scrape{after}
		default:
			return nil, nil, fmt.Errorf("%q begins with neither before, after nor both", line)
		}
		for _, s := range changed {
			if err := changeLine(s, rest); err != nil {
				return nil, nil, fmt.Errorf("%q: %w", line, err)
			}
		}
	}
	return before, after, nil
}

func load(name string) (*doctor.Scrape, error) {
	text, err := os.ReadFile(filepath.Join("testdata", name+".prom"))
	if err != nil {
		return nil, err
	}
	head, rest, _ := strings.Cut(string(text), "\n")
	at, err := time.Parse("# at "+time.RFC3339Nano, head)
	if err != nil {
		return nil, err
	}
	return doctor.Parse(strings.NewReader(rest), at)
}

func changeLine(s *doctor.Scrape, line string) error {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return errors.New("want a metric and a value")
	}
	name, rest, _ := strings.Cut(fields[0], "{")
	family := s.Families[name]
	switch {
	case family == nil && (notRecorded[name] || ofCarbon(name)):
		family = &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum()}
		s.Families[name] = family
	case family == nil:
		return errors.New("there is no such metric in the scrape")
	}
	var labels []*dto.LabelPair
	for pair := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			value = strings.Trim(value, `"`)
			labels = append(labels, &dto.LabelPair{Name: &key, Value: &value})
		}
	}
	v, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return err
	}
	m := series(family, labels)
	if len(fields) == 3 {
		observed, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return err
		}
		observe(m.GetHistogram(), uint64(v), observed)
		return nil
	}
	var at **float64
	switch family.GetType() {
	case dto.MetricType_COUNTER:
		at = &m.Counter.Value
	case dto.MetricType_GAUGE:
		at = &m.Gauge.Value
	default:
		return errors.New("a histogram wants a number of observations and what was observed")
	}
	if strings.HasPrefix(fields[1], "+") {
		v += **at
	}
	*at = &v
	return nil
}

// ofCarbon reports whether the recorded server of metrics has a metric. A backend has it too if it takes points.
func ofCarbon(name string) bool {
	s, err := load("carbon-after")
	return err == nil && s.Families[name] != nil
}

// series returns the series with these labels, perhaps among others; a new one if there is none.
func series(family *dto.MetricFamily, labels []*dto.LabelPair) *dto.Metric {
	for _, m := range family.Metric {
		found := 0
		for _, l := range m.Label {
			for _, want := range labels {
				if l.GetName() == want.GetName() && l.GetValue() == want.GetValue() {
					found++
				}
			}
		}
		if found == len(labels) {
			return m
		}
	}
	zero := 0.0
	m := &dto.Metric{Label: labels, Counter: &dto.Counter{Value: &zero}, Gauge: &dto.Gauge{Value: &zero}, Histogram: &dto.Histogram{}}
	family.Metric = append(family.Metric, m)
	return m
}

func observe(h *dto.Histogram, n uint64, v float64) {
	count, sum := h.GetSampleCount()+n, h.GetSampleSum()+float64(n)*v
	h.SampleCount, h.SampleSum = &count, &sum
	for _, b := range h.Bucket {
		if v <= b.GetUpperBound() {
			c := b.GetCumulativeCount() + n
			b.CumulativeCount = &c
		}
	}
}

// notRecorded are metrics that the recorded backend did not have.
var notRecorded = map[string]bool{
	"lapwing_handler_shed_total": true, "lapwing_handler_retrying": true, "lapwing_handler_escalations_given_up": true, "lapwing_handler_escalation_gave_up": true,
	"lapwing_queue_group_without_agent": true, "lapwing_queue_expired_total": true, "lapwing_queue_given_total": true, "lapwing_queue_answered_total": true,
	"lapwing_checks_late": true, "lapwing_check_lateness_seconds": true, "lapwing_check_without_agent": true,
	"lapwing_tls_certificate_expiry_seconds": true,
	"lapwing_connections":                    true, "lapwing_connections_limit": true, "lapwing_connections_unproven": true,
	"lapwing_expression_set_aside_definition": true,
	"lapwing_metric_member_points_waiting":    true, "lapwing_metric_member_spill_bytes": true, "lapwing_metric_member_spill_limit_bytes": true,
	"lapwing_metric_member_points_dropped_total": true, "lapwing_metric_member_points_sent_total": true,
	"lapwing_metric_member_points_spilled_total": true, "lapwing_metric_member_send_failures_total": true,
	"lapwing_metric_store_journal_failures_total": true,
	"lapwing_metric_check_evaluations_total":      true, "lapwing_metric_rulefile_evaluations_total": true,
	"lapwing_metric_rulefile_lost_samples_total": true,
	"lapwing_cluster_size":                       true, "lapwing_cluster_leased": true, "lapwing_cluster_versions_differ_seconds": true,
	"lapwing_cluster_member_up": true, "lapwing_cluster_member_away_seconds": true, "lapwing_cluster_clock_skew_seconds": true,
	"lapwing_cluster_disk_free_bytes": true, "lapwing_cluster_definitions_lag": true, "lapwing_cluster_fold_lag_messages": true,
	"lapwing_cluster_stream_leaderless_seconds": true, "lapwing_cluster_copies_behind_seconds": true,
	"lapwing_cluster_streams_led": true, "lapwing_cluster_digests_differ": true, "lapwing_cluster_definitions_differ": true,
}

// TestEveryMetricExists checks that each metric named in this package is in a scrape of a real backend.
func TestEveryMetricExists(t *testing.T) {
	s, err := load("hanging-after")
	if err != nil {
		t.Fatal(err)
	}
	carbon, err := load("carbon-after")
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(s.Families, carbon.Families)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, word := range strings.Split(string(text), `"`) {
			isMetric := strings.HasPrefix(word, "lapwing_") || strings.HasPrefix(word, "go_") || strings.HasPrefix(word, "process_")
			if i%2 == 0 || !isMetric || strings.ContainsAny(word, " :") {
				continue
			}
			names++
			switch exists := s.Families[word] != nil; {
			case !exists && !notRecorded[word]:
				t.Errorf("%s: a backend has no metric %s", path, word)
			case exists && notRecorded[word]:
				t.Errorf("%s is recorded: take it out of notRecorded", word)
			}
		}
	}
	if names < 40 {
		t.Errorf("only %d names of metrics were found in the sources", names)
	}
}

func TestNotABackend(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":  "",
		"other":    "# TYPE up gauge\nup 1\n",
		"an agent": "# TYPE lapwing_build_info gauge\nlapwing_build_info{version=\"1\"} 1\n",
	} {
		if _, err := doctor.Parse(strings.NewReader(text), time.Now()); !errors.Is(err, doctor.ErrNotLapwing) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := doctor.Parse(strings.NewReader("<html>"), time.Now()); err == nil || errors.Is(err, doctor.ErrNotLapwing) {
		t.Errorf("a page: %v", err)
	}
}

// TestOneLook examines a scrape against itself: rules that need time find nothing, and nothing is divided by zero.
func TestOneLook(t *testing.T) {
	s, err := load("hanging-after")
	if err != nil {
		t.Fatal(err)
	}
	r := doctor.Examine(s, s)
	if r.Seconds != 0 || math.IsNaN(r.Summary.Folded) || len(r.Findings) != 0 {
		t.Errorf("report %+v", r)
	}
	for _, u := range r.Use {
		if math.IsNaN(u.Share) || math.IsInf(u.Share, 0) {
			t.Errorf("%s: share %v", u.Part, u.Share)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`# TYPE lapwing_build_info gauge
lapwing_build_info{goversion="go1.26",revision="unknown",version="dev"} 1
# TYPE lapwing_eventlog_position gauge
lapwing_eventlog_position{partition="0"} 17
# TYPE lapwing_handler_queue_depth gauge
lapwing_handler_queue_depth{handler="slow"} 20
# TYPE lapwing_handler_running gauge
lapwing_handler_running{handler="slow"} 8
# TYPE lapwing_handler_run_age_seconds gauge
lapwing_handler_run_age_seconds{handler="slow"} 12.5
# TYPE lapwing_handler_duration_seconds histogram
lapwing_handler_duration_seconds_bucket{handler="slow",le="0.001"} 1
lapwing_handler_duration_seconds_bucket{handler="slow",le="+Inf"} 2
lapwing_handler_duration_seconds_sum{handler="slow"} 3
lapwing_handler_duration_seconds_count{handler="slow"} 2
`))
	f.Add([]byte("lapwing_build_info 1\nlapwing_eventlog_position NaN\nlapwing_handler_queue_depth{handler=\"x\"} 1e300\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := doctor.Parse(bytes.NewReader(text), time.Unix(1_700_000_000, 0))
		if err != nil {
			return
		}
		later := *s
		later.At = s.At.Add(time.Second)
		if err := doctor.WriteText(&bytes.Buffer{}, doctor.Examine(s, &later)); err != nil {
			t.Error(err)
		}
	})
}
