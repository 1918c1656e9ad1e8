package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/telemetry"
)

func TestLoggerLevels(t *testing.T) {
	all := []slog.Level{telemetry.LevelTrace, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, telemetry.LevelFatal, telemetry.LevelPanic}
	names := []string{"trace", "debug", "info", "warn", "error", "fatal", "panic"}
	for i, name := range names {
		var out bytes.Buffer
		log, err := telemetry.Logger(&out, name, "json")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			log.Log(t.Context(), l, "line")
		}
		var got []string
		for d := json.NewDecoder(&out); d.More(); {
			var line struct{ Level, Msg, Time string }
			if err := d.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if line.Msg != "line" || line.Time == "" {
				t.Errorf("line %+v: want msg and time", line)
			}
			got = append(got, line.Level)
		}
		if want := names[i:]; !slices.Equal(got, want) {
			t.Errorf("level %s logs %v, want %v", name, got, want)
		}
	}
}

func TestLoggerText(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.Logger(&out, "Warning", "text")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud", "agent", "web1", slog.Group("g", "level", 3))
	if got := out.String(); !strings.Contains(got, "level=warn msg=loud agent=web1 g.level=3") || strings.Contains(got, "quiet") {
		t.Errorf("text log: %q", got)
	}
}

func TestLoggerKeepsForeignLevelAttribute(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.Logger(&out, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "m", slog.String("level", "42"))
	if got := out.String(); !strings.Contains(got, "level=info msg=m level=42") {
		t.Errorf("text log: %q", got)
	}
}

func TestLoggerRefuses(t *testing.T) {
	for _, tc := range []struct{ level, format, want string }{
		{"loud", "json", `unknown log level "loud"`},
		{"", "json", `unknown log level ""`},
		{"info", "xml", `unknown log format "xml"`},
	} {
		if _, err := telemetry.Logger(&bytes.Buffer{}, tc.level, tc.format); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Logger(%q, %q): %v, want %q", tc.level, tc.format, err, tc.want)
		}
	}
}

func TestRegistry(t *testing.T) {
	families, err := telemetry.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		found[f.GetName()] = true
		if f.GetName() == "lapwing_build_info" {
			labels := map[string]string{}
			for _, l := range f.Metric[0].Label {
				labels[l.GetName()] = l.GetValue()
			}
			if f.Metric[0].Gauge.GetValue() != 1 || labels["goversion"] == "" || labels["version"] == "" || labels["revision"] == "" {
				t.Errorf("lapwing_build_info: %v", f.Metric[0])
			}
		}
	}
	for _, want := range []string{"go_goroutines", "go_sched_latencies_seconds", "go_cpu_classes_gc_total_cpu_seconds_total", "process_resident_memory_bytes", "lapwing_build_info"} {
		if !found[want] {
			t.Errorf("no metric %s", want)
		}
	}
	telemetry.Registry() // a second one in the same process must not collide
}

func TestPprofHandler(t *testing.T) {
	srv := httptest.NewServer(telemetry.PprofHandler())
	defer srv.Close()
	for path, want := range map[string]int{
		"/debug/pprof/":                  http.StatusOK,
		"/debug/pprof/goroutine?debug=1": http.StatusOK,
		"/debug/pprof/cmdline":           http.StatusOK,
		"/":                              http.StatusNotFound,
	} {
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}
