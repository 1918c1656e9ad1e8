package send

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// fakeAlertmanager keeps alerts by their labels, as Alertmanager does: an alert that has ended is not firing.
type fakeAlertmanager struct {
	mu     sync.Mutex
	alerts map[string]alert
}

func (f *fakeAlertmanager) take(t *testing.T, body string) {
	t.Helper()
	var alerts []alert
	decode(t, body, &alerts)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range alerts {
		if a.Labels["alertname"] == "" || a.EndsAt.Before(a.StartsAt) || a.StartsAt.IsZero() {
			t.Errorf("Alertmanager would refuse %+v", a)
		}
		for name, value := range a.Labels {
			if value == "" {
				t.Errorf("label %s is empty", name)
			}
		}
		f.alerts[fmt.Sprint(a.Labels)] = a
	}
}

func (f *fakeAlertmanager) firing() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for a := range maps.Values(f.alerts) {
		if a.EndsAt.After(time.Now()) {
			out = append(out, a.Labels["severity"]+" since "+a.StartsAt.Format("15:04:05"))
		}
	}
	slices.Sort(out)
	return out
}

func TestAlertmanager(t *testing.T) {
	srv := newService(t, status(200, ""))
	am := &fakeAlertmanager{alerts: map[string]alert{}}
	s := setup(t, Options{})
	h := handler("alertmanager")
	h.Alertmanager = &resource.HandlerAlertmanager{
		URLs: []string{srv.URL + "/prefix/"}, Labels: map[string]string{"rack": "{{.Entity.Labels.rack}}", "empty": "{{.Entity.Labels.nothing}}"},
		Annotations: map[string]string{"team": "{{.Check.Annotations.team}}"}, Link: "https://lapwing/{{.Name}}",
	}
	h.Alertmanager.Token = "abc"
	f := func(ev *resource.Event, want_ ...string) {
		t.Helper()
		want(t, "send", s.Run(t.Context(), h, job(ev)), KindOK, false, "")
		got := srv.asked(t)
		if got.path != "/prefix/api/v2/alerts" || got.header.Get("Authorization") != "Bearer abc" {
			t.Errorf("got %+v", got)
		}
		am.take(t, got.body)
		if firing := am.firing(); !slices.Equal(firing, want_) {
			t.Errorf("firing are %q, want %q", firing, want_)
		}
	}
	// One incident: it starts as a warning, gets worse, is unknown for a while, and ends.
	f(event(1, 0), "warning since 22:14:50")
	f(event(1, 0, 1), "warning since 22:13:50")
	f(event(2, 0, 1, 1), "critical since 22:12:50")
	f(event(3, 0, 1, 1, 2), "unknown since 22:11:50")
	f(event(2, 0, 1, 1, 2, 3), "critical since 22:10:50")
	f(event(0, 0, 1, 1, 2, 3, 2))
	f(event(0, 0, 1, 1, 2, 3, 2, 0)) // still OK
	f(event(2), "critical since 22:14:50")
	bare := event(0) // its history is lost
	bare.Check.History = nil
	f(bare)

	future := event(2)
	future.Check.Executed = time.Now().Add(time.Hour).Unix() // a wrong clock of an agent
	future.Check.History = nil
	want(t, "future", s.Run(t.Context(), h, job(future)), KindOK, false, "")
	var alerts []alert
	decode(t, srv.asked(t).body, &alerts)
	if a := alerts[0]; a.StartsAt.After(time.Now()) || time.Until(a.EndsAt) < 23*time.Hour {
		t.Errorf("got %+v", a)
	}
	future.Check.Status = 0
	want(t, "future", s.Run(t.Context(), h, job(future)), KindOK, false, "")
	am.alerts = map[string]alert{}
	if am.take(t, srv.asked(t).body); len(am.firing()) != 0 {
		t.Errorf("firing are %q", am.firing())
	}

	want(t, "all", s.Run(t.Context(), h, job(event(2, 0))), KindOK, false, "")
	decode(t, srv.asked(t).body, &alerts)
	labels := map[string]string{
		"alertname": "disk", "namespace": "default", "entity": "web1", "severity": "critical", "rack": "17",
	}
	annotations := map[string]string{
		"summary": "CRITICAL web1/disk: DISK <full>", "description": "DISK <full>\nsecond & last line",
		"team": "storage",
	}
	if a := alerts[0]; !maps.Equal(a.Labels, labels) || !maps.Equal(a.Annotations, annotations) ||
		a.GeneratorURL != "https://lapwing/web1/disk" {
		t.Errorf("got %+v", a)
	}

	// With a severity label of its own it is one alert, at any status.
	h.Alertmanager.Labels = map[string]string{"severity": "page"}
	am.alerts = map[string]alert{}
	f(event(1, 0), "page since 22:14:50")
	f(event(2, 0, 1), "page since 22:13:50")
	f(event(0, 0, 1, 2))
}

func TestAlertmanagerCluster(t *testing.T) {
	t.Parallel()
	good, broken, wrong := newService(t, status(200, "")), newService(t, status(500, "no")), newService(t, status(400, "bad"))
	s := setup(t, Options{})
	timeout := uint32(60) // seconds
	f := func(kind string, temporary bool, err, output string, urls ...string) {
		t.Helper()
		h := handler("alertmanager")
		h.Timeout = timeout
		h.Alertmanager = &resource.HandlerAlertmanager{URLs: urls}
		res := s.Run(t.Context(), h, job(event(2)))
		want(t, fmt.Sprint(urls), res, kind, temporary, err)
		if !strings.Contains(string(res.Output), output) {
			t.Errorf("%v: output %q, want %q", urls, res.Output, output)
		}
	}
	f(KindOK, false, "", "", good.URL, good.URL)
	f(KindOK, false, "", "number 2: status 500", good.URL, broken.URL)
	f(KindOK, false, "", "number 1: ", "http://"+closedAddress(t), good.URL)
	timeout = 5
	f(KindOK, false, "", "number 1: ", "http://"+silent(t).String(), good.URL)
	timeout = 60
	f(KindFailed, true, "status 500", "number 1: status 400", wrong.URL, broken.URL)
	f(KindFailed, false, "status 400", "bad", wrong.URL)
	if got := good.asked(t); got.method != http.MethodPost {
		t.Errorf("got %+v", got)
	}
}
