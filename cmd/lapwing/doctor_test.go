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
	"path/filepath"
	"slices"
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

// TestDoctorOfTheProfile: what the flags leave open is the profile's, but another server gets none of its credentials.
func TestDoctorOfTheProfile(t *testing.T) {
	text, err := os.ReadFile("../../client/doctor/testdata/healthy-after.prom")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.Header.Get("Authorization"))
		_, _ = w.Write(text)
	}))
	t.Cleanup(srv.Close)
	for _, c := range []struct {
		profile string // more of the file
		args    []string
		want    string
	}{
		{`"access_token":"a.b.c"`, nil, "/metrics Bearer a.b.c"},
		{`"APIKey":"k1"`, nil, "/metrics Key k1"},
		{`"APIKey":"k1"`, []string{"--api-key", "k2"}, "/metrics Key k2"},
		{`"access_token":""`, nil, "/metrics "},
		{`"APIKey":"k1"`, []string{"--metrics-url", srv.URL + "/other"}, "/other "},
		{`"APIKey":"k1"`, []string{"--metrics-url", srv.URL + "/other", "--api-key", "k2"}, "/other Key k2"},
	} {
		dir := t.TempDir()
		file := `{"api-url":"` + srv.URL + `",` + c.profile + `}`
		if err := os.WriteFile(filepath.Join(dir, "cluster"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		got = nil
		args := append([]string{"doctor", "--interval", "1ms", "--config-dir", dir}, c.args...)
		if code := run(t.Context(), args); code != 0 {
			t.Errorf("%s %q: exit status %d", c.profile, c.args, code)
		}
		if want := []string{c.want, c.want}; !slices.Equal(got, want) {
			t.Errorf("%s %q: it sent %q, want %q", c.profile, c.args, got, want)
		}
	}
}

// TestDoctorSaysWhatItWaitsFor, and whose versions it shows.
func TestDoctorSaysWhatItWaitsFor(t *testing.T) {
	srv := serveScrape(t, "healthy-after")
	var out, notes bytes.Buffer
	o := doctorOptions{apiURL: srv.URL, interval: time.Millisecond, format: "text", count: 2, notes: &notes}
	if _, err := runDoctor(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if want := "Read " + srv.URL + "/metrics; comparing with a second look in 1ms …\n"; notes.String() != want {
		t.Errorf("it says %q, want %q", &notes, want)
	}
	own := "this program: lapwing " + version + "; the backend:\nlapwing "
	if !strings.HasPrefix(out.String(), own) || strings.Count(out.String(), "this program") != 1 {
		t.Errorf("it begins with %.80q, want %q once", out.String(), own)
	}
}
