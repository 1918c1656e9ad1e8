package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/state"
)

// farHistory is a database with a change each hour, or one that is away.
type farHistory struct {
	report.Source
	configured bool
	coverage   report.Coverage
	changes    []state.StateChange // newest first
	err        error
}

func (f *farHistory) Configured() bool { return f.configured }

func (f *farHistory) Covers(context.Context, time.Time, time.Time) report.Coverage { return f.coverage }

func (f *farHistory) Begin(context.Context, string) (time.Time, error) {
	return f.coverage.Begin, f.err
}

func (f *farHistory) History(
	_ context.Context, _, _, _ string, since, until time.Time, before string, limit int,
) (page []state.StateChange, next string, err error) {
	from := 0
	if before != "" {
		if _, err := fmt.Sscanf(before, "%d", &from); err != nil {
			return nil, "", report.ErrPlace
		}
	}
	for i, c := range f.changes[from:] {
		if len(page) == limit {
			return page, fmt.Sprint(from + i), f.err
		}
		if !c.Time.Before(since) && !c.Time.After(until) {
			page = append(page, c)
		}
	}
	return page, "", f.err
}

// TestReportSources has an embedded history of 90 days.
func TestReportSources(t *testing.T) {
	now := time.Now()
	days := func(n int) time.Time { return now.AddDate(0, 0, -n) }
	far := &farHistory{}
	s := newServer(t, func(o *Options) { far.Source = o.Reports; o.LongHistory = far })
	s.event("default", "web1", "disk", 1)
	s.now.Store(60)
	f := func(since string, configured bool, c report.Coverage, source, note string) {
		t.Helper()
		far.configured, far.coverage = configured, c
		var rep report.Report
		s.do("GET", reportsPath+"response?since="+since, "").is(200).has(&rep)
		if rep.Source != source || rep.SourceNote != note && (note == "" || !strings.Contains(rep.SourceNote, note)) || rep.Total.Pairs != 1 {
			t.Errorf("since %s with %+v: from %s, note %q", since, c, rep.Source, rep.SourceNote)
		}
	}
	const embedded, postgres = report.Embedded, report.PostgreSQL
	f("30d", false, report.Coverage{Begin: days(400)}, embedded, "")
	f("30d", true, report.Coverage{Begin: days(400)}, postgres, "")
	f("300d", true, report.Coverage{Begin: days(400)}, postgres, "")
	f("30d", true, report.Coverage{Begin: days(400), Reason: "it is away"}, embedded, "it is away")
	f("30d", true, report.Coverage{Begin: days(1)}, embedded, "has changes from")
	f("30d", true, report.Coverage{Begin: days(31)}, postgres, "")
	f("300d", true, report.Coverage{Begin: days(89)}, embedded, "has changes from") // the embedded one reaches back further
	f("300d", true, report.Coverage{Begin: days(91)}, postgres, "")
	f("30d", true, report.Coverage{Begin: days(400), Gaps: 1}, embedded, "lacks changes")
	f("300d", true, report.Coverage{Begin: days(400), Gaps: 1}, postgres, "lacks changes")
	far.err = errors.New("gone since")
	s.do("GET", reportsPath+"response?since=30d", "").is(200) // the gap: embedded
	far.coverage.Gaps = 0
	s.do("GET", reportsPath+"response?since=30d", "").is(500)
}

func TestLongHistory(t *testing.T) {
	far := &farHistory{configured: true, coverage: report.Coverage{Begin: time.Now().AddDate(-1, 0, 0)}}
	for i := range 5 {
		far.changes = append(far.changes, state.StateChange{Time: time.Now().AddDate(0, -i, -1), Status: uint32(10 + i)})
	}
	s := newServer(t, func(o *Options) { o.LongHistory = far })
	s.event("default", "web1", "disk", 1)
	const path = "/api/lapwing/v1/namespaces/default/events/web1/disk/history"
	list := func(query string) (statuses, next string) {
		t.Helper()
		a := s.do(http.MethodGet, path+query, "").is(200)
		var changes []stateChange
		if err := json.Unmarshal([]byte(a.body), &changes); err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			statuses += fmt.Sprint(c.Status, " ")
		}
		return statuses, a.header.Get("Sensu-Continue")
	}
	f := func(query, want string) {
		t.Helper()
		if got, _ := list(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	f("", "1 ") // the newest ones are here
	f("?since=80d", "1 ")
	f("?since=360d", "10 11 12 13 14 ")
	f("?since=360d&until=40d", "12 13 14 ")
	far.coverage.Begin = time.Now()
	f("?since=360d", "1 ")
	far.coverage = report.Coverage{Begin: time.Now().AddDate(-1, 0, 0), Reason: "it lags"}
	f("?since=360d", "1 ")
	far.coverage.Reason = ""
	all, token := "", ""
	for {
		page, next := list("?since=360d&limit=2&continue=" + token)
		all += page
		if token = next; token == "" {
			break
		}
		far.coverage.Reason = "it lags now" // further pages come from the same place
	}
	if all != "10 11 12 13 14 " {
		t.Errorf("pages have %q", all)
	}
	for _, bad := range []string{"x", "p", "px"} {
		s.do(http.MethodGet, path+"?since=360d&continue="+continueToken(bad), "").is(400)
	}
	far.coverage.Reason, far.configured = "", false
	f("?since=360d", "1 ")
	far.configured, far.err = true, errors.New("gone")
	s.do(http.MethodGet, path+"?since=360d", "").is(500)
	without := newServer(t, nil)
	without.do(http.MethodGet, path+"?continue="+continueToken("p1"), "").is(400)
}
