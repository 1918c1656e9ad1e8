package api

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const reportsPath = "/api/lapwing/v1/namespaces/default/reports/"

// rows returns the names in a report, in its order, with the number of incidents.
func (a *answer) rows() string {
	a.t.Helper()
	var rep report.Report
	a.is(http.StatusOK).has(&rep)
	var out []string
	for _, r := range rep.Rows {
		out = append(out, fmt.Sprintf("%s%s/%s:%d", r.Label, r.Entity, r.Check, r.Incidents))
	}
	return strings.Join(out, " ")
}

func TestReports(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	s.do("PUT", "/api/core/v2/namespaces/default/checks/mem", `{"metadata":{"name":"mem","namespace":"default","labels":{"service":"shop"}},
		"command":"true","interval":10,"subscriptions":["x"]}`).is(201)
	s.do("PUT", "/api/core/v2/namespaces/default/entities/web1", `{"metadata":{"name":"web1","namespace":"default",
		"labels":{"service":"site","team":"red"}},"entity_class":"proxy"}`).is(200)
	for _, status := range []int{0, 2, 0, 2, 2, 0} {
		s.event("default", "web1", "disk", status)
	}
	s.event("default", "web1", "mem", 0)
	s.event("default", "db1", "mem", 1)
	s.event("default", "old1", "disk", 1)
	s.event("dev", "web1", "disk", 1)
	s.do("DELETE", eventsPath+"/old1/disk", "").is(204)
	s.now.Store(60)

	const present = "fieldSelector=event.check.status%3E=0" // what only events that exist decide
	for _, tc := range []struct{ query, want string }{
		{"response", "web1/disk:2 db1/mem:1 old1/disk:1"},
		{"noisiest", "web1/disk:2 db1/mem:1 old1/disk:1"},
		{"flapping", ""},
		{"availability?by=entity&" + present, "db1/:1 web1/:2"},
		{"response?limit=1", "web1/disk:2"},
		{"incidents?fieldSelector=" + url.QueryEscape("event.entity.name == web1"), "web1/disk:1 web1/disk:1"},
		{"incidents?limit=1&by=pair", "db1/mem:1"}, // it is open
		{"incidents?by=entity", "error"},
		{"response?by=check", "/disk:3 /mem:1"},
		{"response?by=label:service", "site/:2 shop/:1 /:1"},
		{"availability?by=label:service&skip_silenced=true&" + present, "shop/:1 site/:2"},
		{"response?since=30d&until=2026-01-01T00:00:00Z", "error"},
		{"response?labelSelector=team==red", "web1/disk:2"},
		{"response?fieldSelector=" + url.QueryEscape("event.check.name == mem"), "db1/mem:1"},
		// Only names are known of an event that is gone.
		{"response?fieldSelector=" + url.QueryEscape("event.check.name == disk"), "web1/disk:2 old1/disk:1"},
		{"response?fieldSelector=" + url.QueryEscape("event.check.name == disk && event.check.status != 7"), "web1/disk:2"},
		{"response?fieldSelector=" + url.QueryEscape("event.entity.name == old1 || event.check.status == 1"), "db1/mem:1 old1/disk:1"},
		{"response?month=2026-10&since=1h", "error"},
		{"response?month=October", "error"},
		{"response?zone=Berlin", "error"},
		{"response?since=1h&until=2h", "error"},
		{"response?by=host", "error"},
		{"response?by=label:", "error"},
		{"response?format=pdf", "error"},
		{"response?skip_silenced=perhaps", "error"},
		{"response?labelSelector=(", "error"},
		{"response?since=400d&until=300d", "error"}, // before the history
	} {
		a := s.do("GET", reportsPath+tc.query, "")
		switch tc.want {
		case "error":
			a.is(http.StatusBadRequest)
		default:
			if got := a.rows(); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.query, got, tc.want)
			}
		}
	}
	s.do("GET", "/api/lapwing/v1/namespaces/nope/reports/response", "").
		refuses(http.StatusNotFound, codeNotFound, "the namespace nope does not exist")
	var rep report.Report
	s.do("GET", reportsPath+"response?since=400d", "").is(200).has(&rep)
	if !rep.Begin.After(rep.Since) || rep.FirstData == nil || rep.FirstData.Before(rep.Begin) || rep.Total.Pairs != 4 || rep.Total.Resolved != 2 {
		t.Errorf("longer than the history: %+v", rep)
	}

	csv := s.do("GET", reportsPath+"response?format=csv", "").is(200)
	if !strings.HasPrefix(csv.body, "entity,check,incidents,") || !strings.Contains(csv.body, "\nweb1,disk,2,") ||
		csv.header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Errorf("%v %s", csv.header, csv.body)
	}
	cut := s.do("GET", reportsPath+"response?format=csv&limit=1", "").is(200).header
	if cut.Get("Lapwing-Report-More") != "2" || cut.Get("Lapwing-Report-Checks") != "4" {
		t.Errorf("cut: %v", cut)
	}
	html := s.do("GET", reportsPath+"availability?format=html&zone=Europe/Berlin", "").is(200)
	if !strings.Contains(html.body, "<td>web1</td><td>disk</td>") || !strings.Contains(html.body, " CE") ||
		!strings.HasPrefix(html.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v %s", html.header, html.body)
	}

	// A role that is limited by labels sees what it reaches now, and nothing that is gone.
	s.grant("red", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}, LabelSelector: "team == red"})
	red := "Bearer " + s.user("of-red", "red")
	for _, query := range []string{"response", "response?fieldSelector=" + url.QueryEscape("event.check.name == disk")} {
		if got := s.do("GET", reportsPath+query, "", "Authorization", red).rows(); got != "web1/disk:2" {
			t.Errorf("%s of a limited role: %s", query, got)
		}
	}
	s.do("GET", "/api/lapwing/v1/namespaces/dev/reports/response", "", "Authorization", red).is(http.StatusForbidden)
}

// slowSource waits until it is released or cancelled.
type slowSource struct{ began, release, cancelled chan struct{} }

func (s *slowSource) Begin(context.Context, string) (time.Time, error) { return time.Time{}, nil }

func (s *slowSource) Changes(ctx context.Context, _ report.Range, _ func(string, string, string) bool) iter.Seq2[report.History, error] {
	return func(yield func(report.History, error) bool) {
		s.began <- struct{}{}
		select {
		case <-s.release:
		case <-ctx.Done():
			close(s.cancelled)
			yield(report.History{}, ctx.Err())
		}
	}
}

// TestReportsTakeTurns has as many reports under way as may be. The next one waits for one to end, and one whose client
// goes away ends.
func TestReportsTakeTurns(t *testing.T) {
	src := &slowSource{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	s := newServer(t, func(o *Options) { o.Reports = src })
	answers := make(chan *answer)
	ask := func() { answers <- s.do("GET", reportsPath+"response", "") }
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+reportsPath+"response", nil)
		if err != nil {
			gone <- err
			return
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		resp, err := s.http.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	<-src.began
	for range reportsAtOnce - 1 {
		go ask()
		<-src.began
	}
	go ask() // has no turn yet
	if n := len(s.reporting); n != reportsAtOnce {
		t.Errorf("%d reports are under way, want %d", n, reportsAtOnce)
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("a cancelled request was answered")
	}
	<-src.cancelled
	<-src.began // the one that had none
	close(src.release)
	for range reportsAtOnce {
		if got := (<-answers).rows(); got != "" {
			t.Errorf("rows %s", got)
		}
	}
}

func TestReportsWithoutHistory(t *testing.T) {
	s := newServer(t, func(o *Options) { o.Reports = nil })
	s.do("GET", reportsPath+"response", "").is(http.StatusNotImplemented)
}

func TestReportTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 10, 28, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ month, since, until, from, to string }{
		{"", "", "", "2026-09-28T12:00:00Z", "2026-10-28T12:00:00Z"},
		{"", "2d", "1d", "2026-10-26T12:00:00Z", "2026-10-27T12:00:00Z"},
		{"", "90m", "2027-01-01T00:00:00Z", "2026-10-28T10:30:00Z", "2026-10-28T12:00:00Z"},
		{"2026-03", "", "", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{"2026-10", "", "", "2026-09-30T22:00:00Z", "2026-10-28T12:00:00Z"}, // it is not over
		{"2026-11", "", "", "", ""},
		{"2026-10", "1d", "", "", ""},
		{"", "x", "", "", ""},
		{"", "", "70000d", "", ""},
	} {
		from, to, err := reportTimes(tc.month, tc.since, tc.until, berlin, now)
		if tc.from == "" {
			if err == nil {
				t.Errorf("%+v is accepted", tc)
			}
		} else if err != nil || from.UTC().Format(time.RFC3339) != tc.from || to.UTC().Format(time.RFC3339) != tc.to {
			t.Errorf("%+v: %v, %v, %v", tc, from, to, err)
		}
	}
}

// largeSource has one check whose name fills many socket buffers.
type largeSource struct{ name string }

func (s *largeSource) Begin(context.Context, string) (time.Time, error) { return time.Time{}, nil }

func (s *largeSource) Changes(
	_ context.Context, in report.Range, _ func(string, string, string) bool,
) iter.Seq2[report.History, error] {
	return func(yield func(report.History, error) bool) {
		yield(report.History{Namespace: "default", Entity: s.name, Check: "c", Changes: []report.Change{{Time: in.Since}}}, nil)
	}
}

// TestReportsForSlowClients has clients that do not read their reports. Others get theirs.
func TestReportsForSlowClients(t *testing.T) {
	s := newServer(t, func(o *Options) { o.Reports = &largeSource{strings.Repeat("x", 32<<20)} })
	place, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for range reportsAtOnce + 1 {
		conn, err := net.Dial("tcp", place.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %savailability HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", reportsPath, s.token)
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the answer has begun
			t.Fatal(err)
		}
	}
	if n := len(s.reports); n != reportsAtOnce+1 {
		t.Errorf("%d reports are in memory, want %d", n, reportsAtOnce+1)
	}
	s.do("GET", reportsPath+"availability", "").is(http.StatusOK)
}
