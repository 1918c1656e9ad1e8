//go:build !agentonly

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/client/doctor"
)

// serveScrape serves what was recorded of a backend, changed by old and new strings in turn.
func serveScrape(t *testing.T, name string, oldnew ...string) *httptest.Server {
	t.Helper()
	text, err := os.ReadFile("../../client/doctor/testdata/" + name + ".prom")
	if err != nil {
		t.Fatal(err)
	}
	answer := strings.NewReplacer(oldnew...).Replace(string(text))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(srv.Close)
	return srv
}

func TestDoctorExitStatus(t *testing.T) {
	healthy, hanging := serveScrape(t, "healthy-after"), serveScrape(t, "hanging-after")
	down := serveScrape(t, "healthy-after", "\nlapwing_broker_up 1\n", "\nlapwing_broker_up 0\n")
	f := func(want int, args ...string) {
		t.Helper()
		if got := run(t.Context(), append([]string{"doctor", "--interval", "1ms"}, args...)); got != want {
			t.Errorf("doctor %q: exit status %d, want %d", args, got, want)
		}
	}
	f(0, "--api-url", healthy.URL)
	f(0, "--api-url", healthy.URL+"/", "-n", "2")
	f(0, "--metrics-url", healthy.URL+"/metrics", "--format", "json")
	f(0, "--metrics-url", serveScrape(t, "carbon-after").URL+"/metrics")
	full := serveScrape(t, "carbon-after", "\nlapwing_metric_store_disk_full 0\n", "\nlapwing_metric_store_disk_full 1\n")
	f(2, "--metrics-url", full.URL+"/metrics")
	f(1, "--api-url", hanging.URL)
	f(2, "--api-url", down.URL)
	f(3, "--metrics-url", healthy.URL)
	f(3, "--api-url", "http://127.0.0.1:1")
	f(3, "--api-url", "nothing")
	f(3, "--api-url", healthy.URL, "--metrics-url", healthy.URL)
	f(3, "--api-url", healthy.URL, "--format", "yaml")
	f(3, "--api-url", healthy.URL, "--interval", "0s")
	f(3, "--api-url", healthy.URL, "--trusted-ca-file", "none.pem")
	f(3, "--postgres-dsn", "postgres://u@127.0.0.1:1/x") // with --interval
	if got := run(t.Context(), []string{"doctor", "--postgres-dsn", "postgres://u@127.0.0.1:1/x"}); got != 3 {
		t.Errorf("without a server: exit status %d, want 3", got)
	}
	t.Setenv("LAPWING_API_URL", hanging.URL)
	f(1)
}

// TestDoctorOfAStart: while the backend starts or waits, the doctor says what for. A proxy's page says nothing.
func TestDoctorOfAStart(t *testing.T) {
	f := func(want string, answer http.Handler) {
		t.Helper()
		srv := httptest.NewServer(answer)
		defer srv.Close()
		_, err := runDoctor(t.Context(), doctorOptions{apiURL: srv.URL, interval: time.Millisecond, format: "text", count: 1},
			io.Discard)
		if want = "read " + srv.URL + "/metrics: status 503 Service Unavailable" + want; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	const reason = "disk full: 12 bytes free in /var/lib/lapwing, at least 268435456 needed: --min-free-disk; waiting: make room there"
	f(": API unavailable during startup. "+reason, api.Waiting(func() error { return errors.New(reason) }))
	page := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusServiceUnavailable) })
	}
	f("", page("<html>no upstream</html>"))
	f("", page(""))
}

func TestDoctorJSON(t *testing.T) {
	srv := serveScrape(t, "hanging-after")
	var out bytes.Buffer
	severity, err := runDoctor(t.Context(),
		doctorOptions{apiURL: srv.URL, interval: time.Millisecond, format: "json", count: 1}, &out)
	if err != nil || severity != doctor.Warning {
		t.Fatalf("%s, %v", severity, err)
	}
	var got struct {
		Severity string
		Limits   []string
		Findings []struct{ Severity, Part, Subject, Title, Detail, Advice string }
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Severity != "warning" || len(got.Limits) != 1 || len(got.Findings) != 1 || got.Findings[0].Subject != "slow" ||
		got.Findings[0].Advice == "" {
		t.Errorf("report %s", &out)
	}
}

// TestDoctorOfACluster: of the URLs of several backends the first one is examined.
func TestDoctorOfACluster(t *testing.T) {
	for urls, want := range map[string]string{
		"http://a:1": "http://a:1/metrics", "http://a:1,http://b:2": "http://a:1/metrics",
		"https://x/y,": "https://x/y/metrics",
	} {
		if got, err := (doctorOptions{apiURL: urls}).url(); err != nil || got != want {
			t.Errorf("of %s it reads %s, %v, want %s", urls, got, err, want)
		}
	}
}
