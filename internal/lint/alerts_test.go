package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const alertsFile = "docs/prometheus/alerts.yml"

// alerts reads the rules as Prometheus does, which checks expressions and templates.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(document(t, alertsFile)), false)
	if len(errs) > 0 {
		t.Fatalf("%s: %v", alertsFile, errs)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestAlertRules checks that the alerts use existing metrics, and that each has what its receivers read.
func TestAlertRules(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metricRef.FindAllStringSubmatch(document(t, "docs/metrics.md"), -1) {
		known[m[1]] = true
	}
	names := map[string]bool{}
	for _, r := range alerts(t) {
		if r.Alert == "" || names[r.Alert] {
			t.Errorf("%q: no alert, or there are two of this name", r.Alert)
		}
		names[r.Alert] = true
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity is %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: summary or description is missing", r.Alert)
		}
		for _, name := range metricInExpr.FindAllString(r.Expr, -1) {
			if !known[name] {
				t.Errorf("%s: metric %s does not exist", r.Alert, name)
			}
		}
	}
}

// TestAlertsFire evaluates the alerts with figures of a server that is well, and of one for which all of them must fire.
func TestAlertsFire(t *testing.T) {
	well, ill := []string{`up{job="lapwing",instance="a"} 1x60`}, []string{`up{job="lapwing",instance="a"} 0x60`}
	add := func(metric, fine, bad string) {
		name, labels, _ := strings.Cut(metric, "{")
		labels = strings.TrimPrefix(strings.TrimSuffix(labels, "}")+`,instance="a"`, ",")
		well, ill = append(well, name+"{"+labels+"} "+fine), append(ill, name+"{"+labels+"} "+bad)
	}
	// Values of each minute of an hour. A counter of a server that is well stays, or grows by what is normal.
	const calm, grows = "7x60", "0+70x60"
	for _, counter := range []string{
		`store_dropped_points_total{reason="failed"}`, `store_sync_failures_total`, `carbon_dropped_points_total{protocol="udp"}`,
		`refused_points_total{reason="too_many_series"}`, `refused_points_total{reason="bad_name"}`,
		`carbon_rejected_points_total{protocol="line",reason="format"}`, `store_dropped_points_total{reason="late"}`,
		`store_lost_corrections_total`, `store_journal_failures_total`,
		`carbon_connections_full_total{protocol="line"}`, `member_points_dropped_total`,
		`relay_dropped_points_total{destination="b",reason="spill_full"}`, `remote_dropped_samples_total{remote="r",reason="full"}`,
		`remote_spilled_samples_total{remote="r"}`, `remote_retries_total{remote="r"}`, `check_evaluations_total{result="failed"}`, `schema_reloads_total{result="error"}`, `graphite_queries_refused_total`,
	} {
		add("lapwing_metric_"+counter, calm, grows)
	}
	for _, counter := range []string{"journal_failures_total", "journal_dropped_total", "gaps_total"} {
		add("lapwing_postgres_"+counter, calm, grows)
	}
	add(`lapwing_handler_dead_total{handler="h"}`, calm, grows)
	add(`lapwing_handler_runs_total{handler="h",result="ok"}`, grows, calm)
	for _, gauge := range []struct{ name, fine, bad string }{
		{`lapwing_handler_retrying{handler="h"}`, "0x60", "1x60"},
		{"lapwing_postgres_connected", "1x60", "0x60"}, {"lapwing_postgres_behind_seconds", "2x60", "3000x60"},
		{"lapwing_postgres_journal_max_bytes", "100x60", "100x60"}, {"lapwing_postgres_journal_owed_bytes", "20x60", "90x60"},
		{`lapwing_tls_certificate_expiry_seconds{files="api"}`, "9999999x60", "99999x60"},
		{"lapwing_disk_reserve_bytes", "100x60", "100x60"}, {"lapwing_disk_free_bytes", "1000x60", "150x60"},
		{`lapwing_eventlog_pending_age_seconds{partition="0"}`, "0.1x60", "9x60"},
		{`lapwing_state_lag_seconds{partition="0"}`, "0.1x60", "90x60"},
		{`lapwing_handler_queue_age_seconds{handler="h"}`, "5x60", "900x60"},
		{"lapwing_metric_store_disk_full", "0x60", "1x60"}, {"lapwing_metric_store_set_aside_total", "0x60", "1x60"},
		{"lapwing_metric_store_queue_limit_points", "100x60", "100x60"}, {"lapwing_metric_store_queued_points", "9x60", "90x60"},
		{"lapwing_metric_store_series_limit", "100x60", "100x60"}, {"lapwing_metric_store_series", "50x60", "50x60"},
		{"lapwing_metric_store_memory_limit_bytes", "0x60", "100x60"}, {"lapwing_metric_store_memory_bytes", "90x60", "90x60"},
		{"lapwing_metric_points_total", "0+1000x60", "0+1000x60"},
		{"lapwing_metric_member_spill_limit_bytes", "100x60", "100x60"}, {"lapwing_metric_member_spill_bytes", "20x60", "80x60"},
		{"lapwing_metric_member_points_waiting", "200000x60", "200000+1000x60"},
		{`lapwing_metric_remote_queue_age_seconds{remote="r"}`, "5x60", "900x60"},
		{`lapwing_metric_relay_connected{destination="b"}`, "1x60", "0x60"},
		{`lapwing_metric_relay_spill_limit_bytes{destination="b"}`, "100x60", "100x60"},
		{`lapwing_metric_relay_spill_bytes{destination="b"}`, "0x60", "80x60"},
	} {
		add(gauge.name, gauge.fine, gauge.bad)
	}
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for _, tc := range []struct {
		name   string
		series []string
		fire   bool
	}{{"well", well, false}, {"ill", ill, true}} {
		storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(tc.series, "\n  "))
		defer storage.Close()
		for _, r := range alerts(t) {
			q, err := engine.NewInstantQuery(t.Context(), storage, nil, r.Expr, time.Unix(3600, 0))
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			result := q.Exec(t.Context())
			found, err := result.Vector()
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			if fires := len(found) > 0; fires != tc.fire {
				t.Errorf("%s: of a server that is %s it fires: %v", r.Alert, tc.name, fires)
			}
			if problem := labelsMissing(&r, found); problem != "" {
				t.Error(problem)
			}
			q.Close()
		}
	}
}

// TestHandlerAlerts has the figures of handlers whose receivers are down, or refuse some deliveries.
func TestHandlerAlerts(t *testing.T) {
	const age = `lapwing_handler_queue_age_seconds{handler="h",instance="a"} `
	const retrying = `lapwing_handler_retrying{handler="h",instance="a"} `
	const ok = `lapwing_handler_runs_total{handler="h",instance="a",result="ok"} `
	const dead = `lapwing_handler_dead_total{handler="h",instance="a"} `
	f := func(name string, series []string, want ...string) {
		t.Helper()
		storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  "))
		defer storage.Close()
		engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
		var fired []string
		for _, r := range alerts(t) {
			if !strings.Contains(r.Expr, "lapwing_handler_") {
				continue
			}
			q, err := engine.NewInstantQuery(t.Context(), storage, nil, r.Expr, time.Unix(3600, 0))
			if err != nil {
				t.Fatal(err)
			}
			found, err := q.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatal(err)
			}
			if len(found) > 0 {
				fired = append(fired, r.Alert)
			}
			q.Close()
		}
		if !slices.Equal(fired, want) {
			t.Errorf("%s: %q fire, want %q", name, fired, want)
		}
	}
	f("the receiver is down, and all deliveries wait for their next attempt",
		[]string{age + "0x60", retrying + "1x60", ok + "3x60", dead + "0x60"}, "LapwingHandlerBehind", "LapwingHandlerFailing")
	f("it has just gone down", []string{age + "0x60", retrying + "0x55 1x5", ok + "0+9x40 360x20", dead + "0x60"}, "LapwingHandlerFailing")
	f("one delivery is refused again and again",
		[]string{age + "0x60", retrying + "1x60", ok + "0+9x60", dead + "0x60"}, "LapwingHandlerBehind")
	f("some die", []string{age + "0x60", retrying + "0x60", ok + "0+9x60", dead + "0x50 1x10"}, "LapwingDeadLetters")
	f("dead letters of hours ago", []string{age + "0x60", retrying + "0x60", ok + "0+9x60", dead + "8x60"})
}

var labelInTemplate = regexp.MustCompile(`\$labels\.(\w+)`)

// labelsMissing finds labels in the texts of an alert that its series do not have: they would be empty.
func labelsMissing(r *rulefmt.Rule, found promql.Vector) string {
	text := r.Annotations["summary"] + r.Annotations["description"]
	for _, m := range labelInTemplate.FindAllStringSubmatch(text, -1) {
		if slices.ContainsFunc(found, func(s promql.Sample) bool { return s.Metric.Get(m[1]) == "" }) {
			return fmt.Sprintf("%s: its series have no label %s", r.Alert, m[1])
		}
	}
	return ""
}
